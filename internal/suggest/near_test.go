package suggest

import (
	"math/rand/v2"
	"strings"
	"testing"
)

func TestWord(t *testing.T) {
	keys := strings.Fields(`name host path total_active_users new_users_per_minute session_duration
		session_renewal hold hold_phone poll_min poll_max`)
	for word, want := range map[string]string{
		"total_activ_users":         "total_active_users",
		"Total-Active-Users":        "total_active_users",
		"totalactiveusers":          "total_active_users",
		"newUsersPerMinute":         "new_users_per_minute",
		"sesion_duration":           "session_duration",
		"renewal":                   "session_renewal",
		"hodl":                      "hold",
		"pathh":                     "path",
		"":                          "",
		"x":                         "",
		"users":                     "", // part of two keys
		"quite_another_thing":       "",
		strings.Repeat("name", 100): "",
	} {
		if got := Nearest(word, keys); got != want {
			t.Errorf("Word(%.20q): got %q, want %q", word, got, want)
		}
	}
	for word, want := range map[string]string{"rn": "run", "chekc": "check", "serve": ""} {
		if got := Nearest(word, []string{"run", "check", "version"}); got != want {
			t.Errorf("Word(%q): got %q, want %q", word, got, want)
		}
	}
}

func TestDistance(t *testing.T) {
	tests := []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"a", "", 1}, {"", "ab", 2}, {"abc", "abc", 0}, {"abc", "acb", 1},
		{"rate", "raet", 1}, {"kitten", "sitting", 3}, {"ca", "abc", 3}, {"hold", "bold", 1},
	}
	for _, tt := range tests {
		if got := distance(tt.a, tt.b, 9); got != tt.want {
			t.Errorf("distance(%q, %q): got %d, want %d", tt.a, tt.b, got, tt.want)
		}
		if got := distance(tt.b, tt.a, 9); got != tt.want {
			t.Errorf("distance(%q, %q): got %d, want %d", tt.b, tt.a, got, tt.want)
		}
	}
}

// Stopping early changes only one thing: a great distance is returned as the bound.
func TestDistanceUpToABound(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	word := func() string {
		b := make([]byte, random.IntN(12))
		for i := range b {
			b[i] = "abc"[random.IntN(3)]
		}
		return string(b)
	}
	for range 20_000 {
		a, b, most := word(), word(), 1+random.IntN(12)
		if got, all := distance(a, b, most), distance(a, b, 20); got != min(all, most) {
			t.Fatalf("distance(%q, %q, %d): got %d, want the least of it and %d", a, b, most, got, all)
		}
	}
}
