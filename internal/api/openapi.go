package api

import (
	_ "embed"
	"io"
)

//go:embed openapi.json
var openAPIDocument string

// openAPI is GET /v1/openapi.json: a test holds it against the routes.
func (a *API) openAPI(c *call) (any, error) {
	c.w.Header().Set("Content-Type", "application/json")
	_, err := io.WriteString(c.w, openAPIDocument)
	return nil, err
}
