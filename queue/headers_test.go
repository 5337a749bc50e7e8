package queue

import (
	"bufio"
	"errors"
	"net/http"
	"strings"
	"testing"
	"time"
)

func FuzzCheckHeaders(f *testing.F) {
	f.Add("X-A", "1")
	f.Add("Host", "evil.example")
	f.Add("hOsT", "a\nb")
	f.Fuzz(func(t *testing.T, name, value string) {
		if CheckHeaders(map[string]string{name: value}, false) != nil {
			return
		}
		r := &http.Request{Method: "POST", Host: "target", Header: http.Header{}}
		r.Header.Set(name, value)
		var text strings.Builder
		if err := r.Header.Write(&text); err != nil {
			t.Fatal(err)
		}
		back, err := http.ReadRequest(bufio.NewReader(strings.NewReader(
			"POST / HTTP/1.1\r\nHost: target\r\n" + text.String() + "\r\n")))
		if err != nil || back.Host != "target" || len(back.Header) != 1 || back.ContentLength != 0 {
			t.Errorf("%q %q: %v %+v", name, value, err, back)
		}
	})
}

// A job that could never be delivered is rejected when it is put, with the number of its line.
func TestHeadersThatNoJobMayHave(t *testing.T) {
	for _, name := range []string{"Host", "connection", "Webhook-Id", "webhook_signature",
		"Idempotency-Key", "Headgate-Attempt", "Transfer-Encoding", "a b", "", "Webhook.Id"} {
		j := Job{Headers: map[string]string{name: "1"}}
		if err := j.check(time.Now()); !errors.Is(err, ErrJob) {
			t.Errorf("%q: %v", name, err)
		}
		if err := CheckHeaders(j.Headers, true); (err == nil) != (name == "Host") {
			t.Errorf("%q, fixed: %v", name, err)
		}
	}
	for _, j := range []Job{{Key: "a\r\nHost: x"}, {Headers: map[string]string{"X": "1\n2"}}} {
		if err := j.check(time.Now()); !errors.Is(err, ErrJob) {
			t.Errorf("%+v: %v", j, err)
		}
	}
	if _, err := ParseJob([]byte(`{"body": 1, "headers": {"Host": "x"}}`)); !errors.Is(err, ErrJob) {
		t.Error(err)
	}
	good := Job{Key: "Größe 7", Headers: map[string]string{"X-A": "ä", "content-type": "text/plain"}}
	if err := good.check(time.Now()); err != nil {
		t.Error(err)
	}
}
