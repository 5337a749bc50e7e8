package headgate_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"time"

	"github.com/headgate/headgate"
	"github.com/headgate/headgate/limit"
)

// Each client may call twice a minute.
func ExampleLimitMiddleware() {
	limiter, err := headgate.NewLimiter(headgate.LimiterConfig{Limits: []headgate.LimitConfig{{
		Name: "api",
		Rule: limit.Rule{Algorithm: limit.FixedWindow, Align: limit.FirstHit, Amount: 2, Window: time.Minute},
	}}})
	if err != nil {
		fmt.Println(err)
		return
	}
	api := headgate.LimitMiddleware(limiter, []headgate.RequestLimit{{
		Name: "api",
		Key:  []headgate.KeyPart{{Kind: headgate.KeyHeader, Name: "X-Client"}},
	}}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "welcome")
	}))

	for _, client := range []string{"ann", "ann", "ann", "bob"} {
		call := httptest.NewRequest("GET", "/", nil)
		call.Header.Set("X-Client", client)
		w := httptest.NewRecorder()
		api.ServeHTTP(w, call)
		fmt.Println(client, w.Code, w.Header().Get("RateLimit"))
	}
	// Output:
	// ann 200 "api";r=1;t=60
	// ann 200 "api";r=0;t=60
	// ann 429 "api";r=0;t=60
	// bob 200 "api";r=1;t=60
}
