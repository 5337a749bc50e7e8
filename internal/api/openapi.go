package api

import (
	_ "embed"
	"io"
)

//go:embed openapi.json
var openAPIDocument string

// openAPI handles GET /v1/openapi.json. A test compares it with the routes.
func (a *API) openAPI(c *call) (any, error) {
	c.w.Header().Set("Content-Type", "application/json")
	_, err := io.WriteString(c.w, openAPIDocument)
	return nil, err
}
