// node app.js PORT VERSION: an Express application that tells which route it took for which path.
'use strict'

const [port, version] = process.argv.slice(2)
const express = require(version === '4' ? 'express4' : 'express')
const app = express()

const answer = (route) => (req, res) => {
  const pathname = req.originalUrl.split('?')[0]
  res.set('X-Path', Buffer.from(pathname, 'latin1').toString('base64'))
  res.type('text/plain').send(route)
}
app.all('/robots.txt', answer('robots'))
app.all('/admin', answer('admin'))
app.use('/checkout', answer('checkout'))
app.use(answer('other'))
app.listen(Number(port), '127.0.0.1')
