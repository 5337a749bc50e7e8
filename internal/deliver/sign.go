package deliver

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"strconv"
	"strings"
	"time"
)

// A secret has 24 to 64 bytes (Standard Webhooks, "Signature scheme").
const (
	secretPrefix = "whsec_"
	leastSecret  = 24
	mostSecret   = 64
)

// parseSecret parses whsec_ followed by base64. Its errors never contain the secret.
func parseSecret(s string) ([]byte, error) {
	text, ok := strings.CutPrefix(s, secretPrefix)
	key, err := base64.StdEncoding.DecodeString(text)
	if !ok || err != nil || len(key) < leastSecret || len(key) > mostSecret {
		return nil, errors.New("want whsec_ and base64 of 24 to 64 bytes: " +
			"make one by echo whsec_$(openssl rand -base64 32)")
	}
	return key, nil
}

// sign signs a job with each key. A signature is v1 and the base64 of HMAC-SHA256 over
// id.timestamp.body (Standard Webhooks).
func sign(keys [][]byte, id string, at time.Time, body []byte) (timestamp, signature string) {
	timestamp = strconv.FormatInt(at.Unix(), 10)
	for i, key := range keys {
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + timestamp + "."))
		mac.Write(body)
		if i > 0 {
			signature += " "
		}
		signature += "v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil))
	}
	return timestamp, signature
}
