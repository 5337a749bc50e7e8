"""python app.py PORT: a Flask application that tells which route it took for which path."""

import base64
import sys

from flask import Flask, make_response, request

app = Flask(__name__)
METHODS = ["GET", "POST", "PUT"]


def answer(route):
    response = make_response(route)
    seen = request.environ["PATH_INFO"].encode("latin-1")
    response.headers["X-Path"] = base64.b64encode(seen).decode()
    return response


app.add_url_rule("/robots.txt", "robots", lambda: answer("robots"), methods=METHODS)
app.add_url_rule("/admin", "admin", lambda: answer("admin"), methods=METHODS)
app.add_url_rule("/checkout/<path:_>", "checkout", lambda _: answer("checkout"), methods=METHODS)
app.add_url_rule("/", "root", lambda: answer("other"), methods=METHODS)
app.add_url_rule("/<path:_>", "other", lambda _: answer("other"), methods=METHODS)

app.run(host="127.0.0.1", port=int(sys.argv[1]), threaded=True)
