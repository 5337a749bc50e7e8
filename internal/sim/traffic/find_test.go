package traffic

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headgate/headgate/internal/adaptive"
)

// A written is a line of a log, and when it was written.
type written struct {
	at   time.Duration
	line string
}

// logOf writes the access log of an origin with servers of 100 ms, before which up to so many people are, who
// come within 12 minutes, wait for an answer, think for 3 s, and ask again. After 20 requests a person is
// another one. One answer in fails is an error.
func logOf(people, servers, fails int) string {
	r := rand.New(rand.NewPCG(24, 1))
	type ask struct {
		at     time.Duration
		person int
		made   int // requests
	}
	var asks []ask // a heap would be faster
	for i := range people {
		asks = append(asks, ask{at: time.Duration(i) * 12 * time.Minute / time.Duration(people), person: i})
	}
	noon := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	free := make([]time.Duration, servers)
	var lines []written
	for len(asks) > 0 {
		next := 0
		for i := range asks {
			if asks[i].at < asks[next].at {
				next = i
			}
		}
		a := &asks[next]
		slices.Sort(free)
		begin := max(a.at, free[0])
		end := begin + time.Duration((0.5+r.Float64())*0.1*float64(time.Second))
		free[0] = end
		took, status := end-a.at, 200
		if len(lines)%fails == fails-1 {
			status = 502
		}
		if a.made++; a.made%20 == 0 {
			a.person += people
		}
		path := []string{"/", "/cart", fmt.Sprintf("/product/%d?x=1", r.IntN(1000))}[r.IntN(3)]
		lines = append(lines, written{end, fmt.Sprintf("10.%d.%d.7 - - [%s] \"GET %s HTTP/1.1\" %d 99 \"-\" \"Moz\" %.3f\n",
			a.person>>8, a.person&255, noon.Add(end).Format("02/Jan/2006:15:04:05 -0700"),
			path, status, took.Seconds())})
		if a.at = end + time.Duration((2+2*r.Float64())*float64(time.Second)); a.at > 18*time.Minute {
			asks = slices.Delete(asks, next, next+1)
		}
	}
	slices.SortStableFunc(lines, func(a, b written) int { return cmp.Compare(a.at, b.at) })
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.line)
	}
	return b.String()
}

func find(t *testing.T, text string) *Found {
	t.Helper()
	tr, _, err := parse(t, text, Options{Session: 10 * time.Second, Auto: &adaptive.Settings{
		Min: 1, Max: 1 << 30, MaxPerMinute: 1 << 30,
		TargetP95: 400 * time.Millisecond, SessionLength: 10 * time.Second}})
	if err != nil {
		t.Fatal(err)
	}
	return tr.Found
}

// Eight servers of 100 ms answer 80 requests a second: 264 people, each of whom asks every 3.3 s. With
// those whose session is not over they are 304. At the knee itself the queue is long already.
func TestFindsTheKneeInALog(t *testing.T) {
	const never = 1 << 30
	if f := find(t, logOf(300, 8, never)); f.Active < 228 || f.Active > 335 || f.Knee < 65 || f.Knee > 95 {
		t.Errorf("%+v", f)
	}
	if f := find(t, logOf(400, 8, never)); f.Active < 152 || f.Active > 335 {
		t.Errorf("half as many again as it takes: %+v", f)
	}
	if f := find(t, logOf(100, 8, never)); f.Active < 95 || f.Active > 150 || f.Knee != 0 || f.Most > 150 {
		t.Errorf("never full: %+v", f)
	}
	if f := find(t, logOf(100, 8, 5)); f.Active > 60 {
		t.Errorf("one in five fails: %+v", f)
	}
	if f := find(t, request("10.0.0.1", "12:00:00")); f.Active != 0 || f.Timed != 0 {
		t.Errorf("no times: %+v", f)
	}
}

func TestAnswersOfLines(t *testing.T) {
	head := `10.0.0.1 - - [01/Mar/2026:12:00:00 +0000] "GET /a/7?x=1 HTTP/1.1" 200 99`
	for line, want := range map[string]string{
		head + ` "-" "Moz [x] 1.5" 0.250`:                  "GET /a/7 200 250ms true",
		head + ` "-" "Moz" "-" rt=0.250 uct="0.0" urt=0.2`: "GET /a/7 200 250ms true",
		head + ` "-" "Moz" rt="1.5"`:                       "GET /a/7 200 1.5s true",
		head + ` 0.004`:                                    "GET /a/7 200 4ms true",
		head:                                               "GET /a/7 200 0s false",
		head + ` "-" "Moz 1.5"`:                            "GET /a/7 200 0s false",
		head + ` "-" "Moz" -`:                              "GET /a/7 200 0s false",
		head + ` "-" "Moz" -0.5`:                           "GET /a/7 200 0s false",
		head + ` "-" "Moz" NaN.`:                           "GET /a/7 200 0s false",
		`10.0.0.1 - - [01/Mar/2026:12:00:00 +0000] "GET`:   "  0 0s false",
		`10.0.0.1 - - [01/Mar/2026:12:00:00 +0000] "" 400 0 "-" "-" 0.1`: "  0 0s false",
	} {
		method, path, status, took, ok := answerOf([]byte(line))
		if got := fmt.Sprint(method, " ", path, " ", status, " ", took, " ", ok); got != want {
			t.Errorf("%s: %s, want %s", line, got, want)
		}
	}
}
