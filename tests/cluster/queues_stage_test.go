package cluster

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	judge "github.com/headgate/headgate/tests/crowd"
)

var jobs = flag.Int("jobs", jobsOfRun, "how many jobs flow in a run of queues")

// The queue of these runs.
const (
	jobsPerSecond = 2000
	jobsAtOnce    = 64
	jobsGroup     = 4096 // outcomes that may wait to be written (docs/queues.md)
	jobsEach      = 200  // in a put
)

// A feed is a stage whose crowd is jobs of one queue: a producer at each node puts them, and a
// target counts what it gets.
type feed struct {
	*stage
	flow
	ordering
	target *httptest.Server
	ended  *completions // at /ended; nil: none
	tokens map[string]string
	wg     sync.WaitGroup

	mu       sync.Mutex
	followed map[string]*followed // by key
	got      []bool
	count    int // of different jobs
	refuse   int // puts that were not answered, or refused
	said     string
}

// newFeed starts three store nodes and a worker, and the producers. What nodes are told of the
// limit is so many times what the judge is.
func newFeed(t *testing.T, factor int) *feed {
	t.Helper()
	return newFeedOf(t, factor, fmt.Sprintf("target: {url: 'TARGET/NODE'}, concurrency: %d", jobsAtOnce))
}

// newFeedOf is newFeed with these settings of the queue.
func newFeedOf(t *testing.T, factor int, settings string) *feed {
	t.Helper()
	return startFeed(t, factor, settings, func(*feed) {})
}

// startFeed is newFeedOf with something to do before jobs flow.
func startFeed(t *testing.T, factor int, settings string, prepare func(*feed)) *feed {
	t.Helper()
	q := &feed{flow: flow{jobs: *jobs}, got: make([]bool, *jobs), tokens: map[string]string{},
		followed: map[string]*followed{}}
	q.stage = &stage{t: t}
	prepare(q)
	out := newOutside(t)
	q.target = out.serve(t, q)
	t.Cleanup(q.target.Close)
	p := quiet(1000, 60_000, 10*time.Second)
	p.outside = out
	p.limits = fmt.Sprintf("limits:\n  - {name: db, algorithm: sliding_log, amount: %d, window: 1s, "+
		"on_unreachable: deny}\n", jobsPerSecond*factor)
	p.queues = fmt.Sprintf("queues:\n  - {name: orders, limits: [db], min_backoff: 100ms, %s}\n",
		strings.ReplaceAll(settings, "TARGET", q.target.URL))
	q.stage = newStage(t, p)
	q.node("w1")
	q.again("w1")
	for _, n := range q.nodes {
		q.tokens[n.name] = n.token()
	}
	q.hostOf()
	ctx, stop := context.WithCancel(t.Context())
	t.Cleanup(func() { stop(); q.wg.Wait() })
	for i := range q.nodes {
		q.wg.Go(func() { q.produce(ctx, i) })
	}
	return q
}

// ServeHTTP is the target.
func (q *feed) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/ended" {
		q.ended.ServeHTTP(w, r)
		return
	}
	if key := r.Header.Get("Idempotency-Key"); strings.HasPrefix(key, followedKey) {
		q.mu.Lock()
		defer q.mu.Unlock()
		if f := q.followed[key]; f != nil {
			f.arrivals = append(f.arrivals, q.clock())
		}
		return
	}
	a := arrival{node: strings.Trim(r.URL.Path, "/"), at: q.clock()}
	b, err := io.ReadAll(r.Body)
	if err == nil {
		a.job, err = strconv.Atoi(string(b))
	}
	if err != nil { // its sender was killed: what has arrived counts, whatever it is
		a.job, _ = strconv.Atoi(strings.TrimPrefix(r.Header.Get("Idempotency-Key"), "job-"))
	}
	if q.of != nil {
		q.serveOrdered(w, r, a)
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.arriveLocked(a)
}

func (q *feed) arriveLocked(a arrival) {
	q.arrivals = append(q.arrivals, a)
	if !q.got[a.job] {
		q.got[a.job] = true
		q.count++
	}
}

// produce puts every fourth part of the jobs at a node, somewhat faster than they go out. What
// it has no answer for it puts at the next one, again and again.
func (q *feed) produce(ctx context.Context, own int) {
	n := len(q.nodes)
	pace := time.NewTicker(time.Second * jobsEach * time.Duration(n) / jobsPerSecond * 8 / 10)
	defer pace.Stop()
	for from := own * jobsEach; from < q.jobs; from += n * jobsEach {
		select {
		case <-pace.C:
		case <-ctx.Done():
			return
		}
		to := min(q.jobs, from+jobsEach)
		for at := own; ; at = (at + 1) % n {
			err := q.put(ctx, q.nodes[at], from, to)
			if ctx.Err() != nil {
				return
			}
			q.mu.Lock()
			if err == nil {
				q.receipts = append(q.receipts, receipt{q.clock(), to - from})
				q.mu.Unlock()
				break
			}
			q.refuse++
			q.said = err.Error()
			q.mu.Unlock()
			if !wait(ctx, time.NewTimer(50*time.Millisecond)) {
				return
			}
		}
	}
}

func (q *feed) put(ctx context.Context, n *node, from, to int) error {
	var b strings.Builder
	for i := from; i < to; i++ {
		order := ""
		if q.of != nil {
			order = fmt.Sprintf(`"order_key":%q,`, q.of(i))
		}
		fmt.Fprintf(&b, "{%s\"key\":\"job-%d\",\"text\":\"%d\"}\n", order, i, i)
	}
	return q.putLines(ctx, n, b.String())
}

// putLines puts jobs at a node, one on a line.
func (q *feed) putLines(ctx context.Context, n *node, lines string) error {
	ctx, stop := context.WithTimeout(ctx, 15*time.Second) // longer than a node waits for its engine
	defer stop()
	url := "http://" + n.admin + "/v1/queues/orders/jobs"
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, url, strings.NewReader(lines))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+q.tokens[n.name])
	r.Header.Set("Content-Type", "application/x-ndjson")
	res, err := q.api.RoundTrip(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err == nil && res.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", res.Status, text)
	}
	return err
}

// hostOf asks until a node says which one delivers the queue.
func (q *feed) hostOf() string {
	q.t.Helper()
	var last error
	for end := time.Now().Add(2 * settled); time.Now().Before(end); q.rest(100 * time.Millisecond) {
		for _, n := range q.nodes {
			var s struct{ Node string }
			if !n.runs() {
				continue
			}
			last = q.ask(n, http.MethodGet, "/v1/queues/orders", q.tokens[n.name], "", &s)
			if last == nil && s.Node != "" {
				return s.Node
			}
		}
	}
	q.t.Fatalf("no node delivers the queue within %v: %v", 2*settled, last)
	return ""
}

// arrived is how many different jobs the target has.
func (q *feed) arrived() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.count
}

// each does harm, again and again, until most jobs have arrived, and at least once: each time
// when jobs have flowed for a while.
func (q *feed) each(harm func(i int)) {
	q.t.Helper()
	for i := 0; i == 0 || q.arrived() < q.jobs*7/10; i++ {
		n, end := q.arrived()+3*jobsPerSecond, q.clock()+time.Minute
		for q.arrived() < n && q.clock() < end {
			q.rest(100 * time.Millisecond)
		}
		harm(i)
	}
}

// strike kills a node, which is away for a while.
func (q *feed) strike(name string) {
	q.t.Helper()
	q.kill("kill", name)
	q.rest(downFor)
	q.again(name)
}

// Wanted are what a run is held against, beside what no run may do.
type wanted struct {
	pause   time.Duration // the longest, and stalls
	repeats int           // at most
	besides []judge.Figure
}

// done waits until all jobs have arrived, and judges.
func (q *feed) done(want wanted) {
	q.t.Helper()
	stuck, n := q.clock(), 0
	for now := q.arrived(); now < q.jobs; now = q.arrived() {
		if now > n {
			stuck, n = q.clock(), now
		}
		if q.clock()-stuck > time.Minute {
			q.t.Errorf("%d of %d have arrived, and none for a minute", now, q.jobs)
			break
		}
		q.rest(100 * time.Millisecond)
	}
	if q.arrived() < q.jobs {
		for _, n := range q.nodes {
			text, err := q.answer(n, http.MethodGet, "/v1/queues/orders",
				q.tokens[n.name], "")
			q.t.Logf("%s says %s %v", n.name, text, err)
		}
	}
	q.rest(3 * time.Second) // what comes again comes now
	for _, n := range q.nodes {
		n.alive()
	}
	q.wg.Wait()
	q.mu.Lock()
	defer q.mu.Unlock()
	q.flow.sort()
	figures := append(q.figures(want), want.besides...)
	q.t.Logf("%d jobs, %d deliveries in %v; faults: %v\n%s", q.jobs, len(q.arrivals),
		q.arrivals[len(q.arrivals)-1].at-q.arrivals[0].at, q.faults, judge.Table(figures))
	for _, f := range figures {
		if !f.OK() {
			q.t.Errorf("%s: %.4g, limit %.4g %s", f.Name, f.Reach, f.Limit, f.Note)
		}
	}
	if !q.t.Failed() {
		q.keepQueue(figures)
	}
}

func (q *feed) figures(want wanted) []judge.Figure {
	lost, repeats := q.missing()
	most1, at := q.inWindow(time.Second)
	longest := q.pauses(4)
	var told []string
	for _, p := range longest {
		told = append(told, fmt.Sprintf("%v from %v", p.long().Round(time.Millisecond),
			p.from.Round(time.Millisecond)))
	}
	from := map[string]int{}
	for _, a := range q.arrivals {
		from[a.node]++
	}
	return []judge.Figure{
		most("answered and not delivered", len(lost), 0, "%v", lost[:min(4, len(lost))]),
		most("delivered again", repeats, want.repeats, ""),
		most("arrived in any second", most1, jobsPerSecond, "from %v", at.Round(time.Millisecond)),
		most("longest without a delivery though jobs waited, ms", int(longest[0].long().Milliseconds()),
			int((want.pause + stalls*q.stalled).Milliseconds()), "%s", strings.Join(told, "; ")),
		show("puts that were tried again", float64(q.refuse), "%s", q.said),
		show("delivered by each", float64(len(q.arrivals)), "%v", from),
		show("this machine stood still, ms: longest", float64(q.stalled.Milliseconds()), ""),
	}
}

// keepQueue writes a run's row into the table of queues.
func (q *feed) keepQueue(figures []judge.Figure) {
	q.t.Helper()
	what := deeds()[q.t.Name()]
	if *table == "" || what == "" || *beside {
		return
	}
	row := fmt.Sprintf("| `%s` | %s | %d | %d | %.0f | %.0f | %.0f of %.0f | %.1f s |", q.t.Name(), what,
		q.jobs, len(q.faults), figures[0].Reach, figures[1].Reach, figures[2].Reach, figures[2].Limit,
		figures[3].Reach/1000)
	keepRow(q.t, "## Queues\n", q.t.Name(), row)
}

// A lease of two seconds is shorter than most faults, and longer than what workers need for most jobs. The
// rate gives time for several faults.
const (
	pullSettings   = "pull: {lease: 2s}, rate: 500, max_attempts: 1000"
	workersOfNode  = 4
	claimsOfWorker = 100
	leaseOfPull    = 2 * time.Second // of pullSettings
	askOfWorker    = 5 * time.Second // a node waits so long for a host that has died
	// A claim waits for longer than a body may take to arrive, and than a host on another node lets it wait.
	waitOfClaim = 15 * time.Second
)

// A labor is what workers were told of one job.
type labor struct {
	ok    int           // how many claims were acknowledged with a clear answer
	at    time.Duration // the first of these answers
	done  bool          // ok, or told as delivered
	after int           // handed out by a claim that began after the answer
}

// A workforce is the workers of all nodes.
type workforce struct {
	*feed
	jobs                []labor
	left                int // jobs that are not done
	claims, lost, backs int
	late                int // acknowledged, and the lease was over
	vain                int // claims that waited to their end
}

// work lets workers claim jobs at each node until the function that it returns is called: it waits until all
// jobs are done, and judges.
func (q *feed) work() func() []judge.Figure {
	ctx, stop := context.WithCancel(q.t.Context())
	f := &workforce{feed: q, jobs: make([]labor, q.jobs), left: q.jobs}
	seed := rand.Uint64()
	q.t.Logf("seed of the workers %d", seed)
	for i := range len(q.nodes) * workersOfNode {
		q.wg.Go(func() { f.worker(ctx, i%len(q.nodes), rand.New(rand.NewPCG(seed, uint64(i)))) })
	}
	return func() []judge.Figure {
		defer stop()
		return f.judge()
	}
}

// worker claims jobs at a node, and does them.
func (f *workforce) worker(ctx context.Context, at int, r *rand.Rand) {
	n := f.nodes[at]
	for ctx.Err() == nil {
		began := f.clock()
		var got struct {
			Jobs []struct{ Receipt, Text, State string }
		}
		body := fmt.Sprintf(`{"max": %d, "wait": "%v", "worker": "%s"}`, 1+r.IntN(claimsOfWorker), waitOfClaim, n.name)
		status := f.say(ctx, n, "claim", body, &got)
		if status != http.StatusOK {
			wait(ctx, time.NewTimer(200*time.Millisecond))
			continue
		}
		f.handed(n.name, began, len(got.Jobs), func(i int) string { return got.Jobs[i].Text })
		var receipts, jobs []string
		for i := range got.Jobs {
			receipts, jobs = append(receipts, got.Jobs[i].Receipt), append(jobs, got.Jobs[i].Text)
		}
		late := f.clock() + leaseOfPull
		took := time.Duration(r.IntN(500)) * time.Millisecond
		if r.IntN(20) == 0 { // too long
			took += leaseOfPull
		}
		wait(ctx, time.NewTimer(took))
		if len(jobs) == 0 {
			continue
		}
		switch r.IntN(20) {
		case 0: // it forgets them
		case 1:
			f.settle(ctx, r, "nack", receipts, jobs, late, `, "untried": true`)
		case 2:
			f.settle(ctx, r, "nack", receipts, jobs, late, `, "why": "no table"`)
		default:
			f.settle(ctx, r, "ack", receipts, jobs, late, "")
		}
	}
}

// handed notes what a claim that began at a moment has got.
func (f *workforce) handed(node string, began time.Duration, n int, text func(int) string) {
	now := f.clock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if n == 0 && now-began >= waitOfClaim {
		f.vain++
	}
	f.claims++
	for i := range n {
		job, err := strconv.Atoi(text(i))
		if err != nil {
			f.t.Errorf("a job is %q", text(i))
			return
		}
		f.arriveLocked(arrival{job: job, node: node, at: now})
		if l := &f.jobs[job]; l.done && began > l.at {
			l.after++
		}
	}
}

// settle says what became of jobs, at any node, until there is a clear answer.
func (f *workforce) settle(
	ctx context.Context, r *rand.Rand, verb string, receipts, jobs []string, late time.Duration, more string,
) {
	list, err := json.Marshal(receipts)
	if err != nil {
		f.t.Error(err)
		return
	}
	var said struct {
		Results []struct {
			OK    bool
			State string
		}
	}
	first := f.clock()
	var sent time.Duration // the last time
	for {
		sent = f.clock()
		status := f.say(ctx, f.nodes[r.IntN(len(f.nodes))], verb, `{"receipts": `+string(list)+more+`}`, &said)
		if status == http.StatusOK || status == http.StatusGone {
			break
		}
		if !wait(ctx, time.NewTimer(100*time.Millisecond)) {
			return
		}
	}
	now := f.clock()
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(said.Results) != len(receipts) {
		f.t.Errorf("%d results of %d receipts", len(said.Results), len(receipts))
		return
	}
	for i, is := range said.Results {
		job, err := strconv.Atoi(jobs[i])
		if err != nil {
			f.t.Error(err)
			return
		}
		l := &f.jobs[job]
		switch {
		case is.OK && verb == "ack":
			l.ok++
			if sent > late {
				f.late++
			}
		case is.OK:
			f.backs++
			continue
		case is.State != "delivered":
			f.lost++
			continue
		}
		if verb == "ack" {
			f.doneLocked(job, first)
		}
		if !l.done {
			l.done, l.at = true, now
			f.left--
		}
	}
}

// say sends a request about claims, and returns the status of the answer, 0 if there was none.
func (f *workforce) say(ctx context.Context, n *node, verb, body string, into any) int {
	ctx, stop := context.WithTimeout(ctx, waitOfClaim+15*time.Second)
	defer stop()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+n.admin+"/v1/queues/orders/"+verb,
		strings.NewReader(body))
	if err != nil {
		f.t.Error(err)
		return 0
	}
	r.Header.Set("Authorization", "Bearer "+f.tokens[n.name])
	res, err := f.api.RoundTrip(r)
	if err != nil {
		return 0
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || json.Unmarshal(text, into) != nil {
		return 0
	}
	return res.StatusCode
}

// judge waits until all jobs are done, and holds what workers were told against each other.
func (f *workforce) judge() []judge.Figure {
	f.t.Helper()
	stuck, before := f.clock(), f.left+1
	for {
		f.mu.Lock()
		left := f.left
		f.mu.Unlock()
		if left < before {
			stuck, before = f.clock(), left
		}
		if left == 0 || f.clock()-stuck > time.Minute {
			break
		}
		f.rest(100 * time.Millisecond)
	}
	f.rest(2*waitOfClaim + time.Second) // what is handed out again comes now, and waiting workers return
	f.mu.Lock()
	defer f.mu.Unlock()
	var twice, after int
	for i := range f.jobs {
		if f.jobs[i].ok > 1 {
			twice++
		}
		if f.jobs[i].after > 0 {
			after++
		}
	}
	return []judge.Figure{
		most("claimed jobs that nobody could acknowledge", f.left, 0, ""),
		most("acknowledged to two workers", twice, 0, ""),
		most("acknowledged after the end of the lease", f.late, 0, ""),
		most("handed out after their acknowledgment", after, 0, ""),
		most("no lease ended, or nothing was given back", int(1-min(f.lost, f.backs, 1)), 0, ""),
		most("no claim without a job waited to its end", int(1-min(f.vain, 1)), 0, ""),
		show("claims", float64(f.claims), "%d receipts too late, %d given back", f.lost, f.backs),
	}
}
