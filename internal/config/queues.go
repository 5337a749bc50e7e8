package config

import (
	"encoding/json"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/headgate/headgate/internal/cron"
	"github.com/headgate/headgate/internal/suggest"
	"github.com/headgate/headgate/limit"
	"github.com/headgate/headgate/queue"
)

// Bounds of queues. Chosen: each queue is two streams of the engine.
const (
	maxQueues = 100
	maxWeight = 1000
)

func defaultQueue() Queue {
	return Queue{
		Target: QueueTarget{Method: "POST", Timeout: 30 * time.Second}, Weight: 1, Spread: true,
		Concurrency: 64, MaxAttempts: 20, MinBackoff: time.Second, MaxBackoff: 5 * time.Minute,
		KeyWindow: time.Hour, Outcomes: 100_000, OutcomeAge: day, MaxWaiting: 5_000_000, MaxBytes: 16 << 30,
	}
}

// queueFields connects the keys of a queue to the fields of Queue.
func queueFields(q *Queue) []field {
	const year = 366 * day
	return []field{
		required("name", "orders", nameText(&q.Name)),
		{name: "target", example: "{url: http://127.0.0.1:9000/orders}", read: group("target",
			targetFields(&q.Target)).read, without: func() bool { return q.Pull.Lease > 0 }},
		{name: "pull", read: readPull(&q.Pull)},
		{name: "limits", read: readRoomLimits(&q.Limits)},
		{name: "tenant_limits", read: readRoomLimits(&q.TenantLimits)},
		one("weight", whole(&q.Weight, 1, maxWeight)),
		one("reserved", whole(&q.Reserved, 0, limit.MaxAmount)),
		{name: "tenants", read: readOverrides(&q.Tenants)},
		one("spread", truth(&q.Spread)),
		{name: "rate", read: readRate(q)},
		one("concurrency", whole(&q.Concurrency, 1, mostConcurrency)),
		one("max_attempts", whole(&q.MaxAttempts, 1, 10_000)),
		one("min_backoff", span(&q.MinBackoff, time.Millisecond, year, false)),
		one("max_backoff", span(&q.MaxBackoff, time.Millisecond, year, false)),
		one("max_age", span(&q.MaxAge, time.Second, year, true)),
		one("key_window", span(&q.KeyWindow, time.Second, 7*day, true)),
		one("outcomes", whole(&q.Outcomes, 0, 1_000_000)),
		one("outcome_age", span(&q.OutcomeAge, time.Second, 40*day, false)),
		{name: "schedules", read: readSchedules(&q.Schedules)},
		{name: "completion", read: readCompletion(&q.Completion)},
		one("max_waiting", whole(&q.MaxWaiting, 1, 50_000_000)),
		one("max_bytes", whole(&q.MaxBytes, 1<<20, 1<<40)),
	}
}

// readPull reads how jobs are claimed. An empty group is enough.
func readPull(p *QueuePull) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		p.Lease = 30 * time.Second
		d.mapping(key, n, []field{one("lease", span(&p.Lease, time.Second, 12*time.Hour, false))})
	}
}

// readCompletion reads which queue gets the completions of a queue.
func readCompletion(c *QueueCompletion) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		d.mapping(key, n, []field{
			required("queue", "ended", text(&c.Queue, cleanName)),
			some(list("on", &c.On, cleanEnd), "is empty: nothing would ever be sent", "leave the key out for all"),
		})
		if len(c.On) == 0 {
			c.On = queue.Ends()
		}
	}
}

func cleanEnd(s string) (string, *mistake) {
	if ends := queue.Ends(); !slices.Contains(ends, s) {
		return "", wrong("the states are "+strings.Join(ends, ", "), "no job ends as %s", quote(s))
	}
	return s, nil
}

// checkCompletions checks that completions go to other queues, and none of them in a circle.
func checkCompletions(d *decoder, c *Config, named map[string]int) {
	for i := range c.Queues {
		k, name := "queues["+strconv.Itoa(i)+"].completion.queue", c.Queues[i].Completion.Queue
		at, known := named[name]
		if name != "" && !known && d.good(k) {
			d.clash(wrong(queueHint(c, name), "there is no queue %s", quote(name)), k)
		}
		for range c.Queues { // a circle that it leads to is reported at its own queues
			if !known || at == i {
				break
			}
			at, known = named[c.Queues[at].Completion.Queue]
		}
		if known && at == i && d.good(k) {
			d.clash(wrong("let the last queue have no completion",
				"leads back to this queue: each completion would cause the next one"), k)
		}
	}
}

func queueHint(c *Config, name string) string {
	var all []string
	for i := range c.Queues {
		all = append(all, c.Queues[i].Name)
	}
	if meant := suggest.Nearest(name, all); meant != "" {
		return "did you mean " + meant + "?"
	}
	return "add a queue of that name under queues: its target gets the completions"
}

// readSchedules reads the schedules of a queue.
func readSchedules(dst *[]QueueSchedule) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		if n.Kind == yaml.SequenceNode && len(n.Content) > queue.MaxSchedules {
			d.fault(key, n, wrong("put jobs with at in place of some of them", "has %d schedules, more than %d",
				len(n.Content), queue.MaxSchedules))
			return
		}
		for key, item := range d.items(key, n) {
			s := QueueSchedule{TimeZone: "UTC", Missed: string(queue.MissedOnce)}
			d.mapping(key, item, []field{
				required("name", "nightly", nameText(&s.Name)),
				required("cron", `"0 3 * * *"`, text(&s.Cron, cleanCron)),
				one("time_zone", text(&s.TimeZone, func(s string) (string, *mistake) {
					_, m := cleanZone(s)
					// Such as Europe/./././Berlin.
					if most := queue.MaxRule - cron.MaxLine - 1; m == nil && len(s) > most {
						m = wrong("write the name of the IANA list", "has more than %d bytes", most)
					}
					return s, m
				})),
				one("missed", word(&s.Missed, string(queue.MissedOnce), string(queue.MissedSkip), string(queue.MissedAll))),
				{name: "job", example: "{body: {report: daily}}", read: readJob(&s.Job)},
			})
			for i := range *dst {
				if (*dst)[i].Name == s.Name && s.Name != "" && d.good(key+".name") {
					d.clash(wrong("give each schedule of the queue a name of its own",
						"%s is already the name of another one", quote(s.Name)), key+".name")
				}
			}
			*dst = append(*dst, s)
		}
	}
}

func cleanCron(s string) (string, *mistake) {
	if _, err := cron.Parse(s, time.UTC); err != nil {
		return "", wrong(`write minute, hour, day of the month, month and day of the week, such as "0 3 * * 1-5"`,
			"is not a cron line: %v", err)
	}
	return s, nil
}

// readJob reads a job, with the keys of the JSON object in which jobs are put.
func readJob(dst *string) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		d.note(key, n)
		const hint = `write it as in a put, such as {body: {report: daily}, priority: 5}`
		b, m := appendJSON(nil, d, n)
		var j queue.Job
		if m == nil {
			var err error
			if j, err = queue.ParseJob(b); err != nil {
				m = wrong(hint, "%s", strings.TrimPrefix(err.Error(), queue.ErrJob.Error()+": "))
			}
		}
		switch {
		case m != nil:
		case j.Key != "" || !j.At.IsZero():
			m = wrong("take them out", "has key or at, which are those of each firing")
		case len(j.Headers) > queue.MaxHeaders-2:
			m = wrong("take some out", "has %d headers, more than %d", len(j.Headers), queue.MaxHeaders-2)
		}
		if m != nil {
			d.fault(key, n, m)
			return
		}
		*dst = string(b)
	}
}

// appendJSON appends a value of the file as JSON. Numbers stay as they are written.
func appendJSON(b []byte, d *decoder, n *yaml.Node) ([]byte, *mistake) {
	n = d.Resolve(n)
	if d.Stopped || len(b) > queue.MaxLine {
		return b, wrong("store it elsewhere, and put where", "has more than %d bytes", queue.MaxLine)
	}
	var m *mistake
	switch n.Kind {
	case yaml.MappingNode, yaml.SequenceNode:
		open, end := byte('['), byte(']')
		if n.Kind == yaml.MappingNode {
			open, end = '{', '}'
		}
		b = append(b, open)
		seen := map[string]bool{}
		for i, item := range n.Content {
			separator := byte(',')
			if n.Kind == yaml.MappingNode && i%2 == 1 {
				separator = ':'
			}
			if i > 0 {
				b = append(b, separator)
			}
			if isKey := n.Kind == yaml.MappingNode && i%2 == 0; isKey {
				k := d.Resolve(item)
				if k.Kind != yaml.ScalarNode || k.Tag == "!!merge" || seen[k.Value] {
					return b, wrong("write each key out, and once", "has a key that is not a word, or twice")
				}
				seen[k.Value] = true
				item = jsonText(k.Value)
			}
			if b, m = appendJSON(b, d, item); m != nil {
				return b, m
			}
		}
		return append(b, end), nil
	case yaml.ScalarNode:
		switch plain := json.Valid([]byte(n.Value)); {
		case n.Tag == "!!null":
			return append(b, "null"...), nil
		case (n.Tag == "!!int" || n.Tag == "!!float" || n.Tag == "!!bool") && plain:
			return append(b, n.Value...), nil
		case n.Tag == "!!int" || n.Tag == "!!float" || n.Tag == "!!bool": // such as 010 or .5
			return b, wrong("put it in quotes, or write it as in JSON", "has the value %s, which JSON does not know",
				clip(n.Value))
		}
		s, err := json.Marshal(n.Value)
		if err != nil {
			return b, wrong("write other text", "%v", err)
		}
		return append(b, s...), nil
	}
	return b, wrong("write a value", "is %s", kind(n))
}

// checkPull checks the keys of a queue whose jobs are claimed against each other.
func (q *Queue) checkPull(d *decoder, k string) {
	if q.Pull.Lease == 0 {
		return
	}
	if _, written := d.spots[k+"target"]; written {
		d.clash(wrong("keep one of the two: workers claim the jobs, or headgate delivers them",
			"stands beside target"), k+"pull")
	}
	if q.Auto.Mode != "" && d.good(k+"rate") {
		d.clash(wrong("write a number, or nothing", "is found by the answers of a target, and workers claim the jobs"),
			k+"rate")
	}
	if _, written := d.spots[k+"concurrency"]; !written {
		q.Concurrency = mostConcurrency
	}
}

// mostConcurrency is the highest number of jobs under way.
const mostConcurrency = 10_000

// leastRate is the lowest rate that is found. Chosen: fewer answers say too little about a target.
const leastRate = 5

// readRate reads a number, or the bounds of a rate that is found.
func readRate(q *Queue) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		if n.Kind != yaml.MappingNode {
			d.scalar(key, n, whole(&q.Rate, 0, mostRate))
			return
		}
		q.Rate = q.Auto.read(d, key, n, mostRate)
		if q.Auto.Min < leastRate && d.good(key, key+".min", key+".max") {
			d.clash(wrong("write at least "+strconv.Itoa(leastRate)+", or a number in place of the group",
				"%d jobs a second say too little about a target", q.Auto.Min), key+".min")
		}
	}
}

// mostRate is the highest rate of a queue.
const mostRate = 1_000_000

func targetFields(t *QueueTarget) []field {
	return []field{
		required("url", "http://127.0.0.1:9000/orders", raw(&t.URL, cleanTarget)),
		one("method", word(&t.Method, "POST", "PUT", "PATCH", "GET", "DELETE")),
		list("headers", &t.Headers, cleanTargetHeader),
		list("secret_files", &t.SecretFiles, cleanFile),
		one("timeout", span(&t.Timeout, 10*time.Millisecond, time.Hour, false)),
		one("ca", raw(&t.CA, cleanFile)),
		one("certificate", raw(&t.Certificate, cleanFile)),
		one("key", raw(&t.Key, cleanFile)),
		one("shared", truth(&t.Shared)),
	}
}

func readQueues(c *Config) func(*decoder, string, *yaml.Node) {
	return func(d *decoder, key string, n *yaml.Node) {
		if n.Kind == yaml.SequenceNode && len(n.Content) > maxQueues {
			d.fault(key, n, wrong("one queue may have a tenant for each client: see tenants",
				"has %d queues, more than %d", len(n.Content), maxQueues))
			return
		}
		for key, item := range d.items(key, n) {
			q := defaultQueue()
			d.mapping(key, item, queueFields(&q))
			c.Queues = append(c.Queues, q)
		}
	}
}

// checkQueues checks the queues against each other and against the limits.
func checkQueues(d *decoder, c *Config) {
	known, shared := map[string]*Limit{}, d.good("limits")
	var all []string
	for i := range c.Limits {
		known[c.Limits[i].Name] = &c.Limits[i]
		all = append(all, c.Limits[i].Name)
	}
	named, reserved := map[string]int{}, map[string]int64{}
	for i := range c.Queues {
		q, k := &c.Queues[i], "queues["+strconv.Itoa(i)+"]."
		if j, twice := named[q.Name]; twice && q.Name != "" {
			d.clash(wrong("give each queue a name of its own",
				"%s is already the name of queues[%d]", quote(q.Name), j), k+"name")
		}
		named[q.Name] = i
		for key, names := range map[string][]string{"limits": q.Limits, "tenant_limits": q.TenantLimits} {
			for j, name := range names {
				k := k + key + "[" + strconv.Itoa(j) + "]"
				switch l := known[name]; {
				case !shared || !d.good(k):
				case l == nil:
					d.clash(wrong(limitHint(d, name, all), "there is no limit %s", quote(name)), k)
				case l.Auto.Mode != "":
					d.clash(wrong("use another limit", "the amount of %s is found by what rooms measure; "+
						"nothing measures a queue's calls", quote(name)), k)
				}
			}
		}
		q.Limits, q.TenantLimits = union(nil, q.Limits), union(nil, q.TenantLimits)
		q.checkReserved(d, k+"reserved", known, reserved)
		if q.MinBackoff > q.MaxBackoff && d.good(k+"min_backoff", k+"max_backoff") {
			d.clash(wrong("raise max_backoff, or lower min_backoff", "%s is longer than %s",
				short(q.MinBackoff), short(q.MaxBackoff)), k+"max_backoff", k+"min_backoff")
		}
		for name, weight := range q.Tenants {
			if key := under(k+"tenants", name); (weight < 1 || weight > maxWeight) && d.good(key) {
				d.clash(wrong("write a whole number from 1 to "+strconv.Itoa(maxWeight),
					"%d is no weight", weight), key)
			}
		}
		q.checkPull(d, k)
		q.Target.cross(d, k+"target.")
		if q.Target.Shared && q.Auto.Mode != "" && d.good(k+"rate", k+"target.shared") {
			d.clash(wrong("keep one of the two", "stands beside a rate that is found: both look for the rate"),
				k+"target.shared")
		} else if q.Target.Shared && shared && q.paced(known) == nil {
			d.clash(wrong("name a limit with a window in requests under limits",
				"stands beside no rate: how much the target takes in all is not known"), k+"target.shared")
		}
	}
	checkCompletions(d, c, named)
}

// checkReserved adds up the reserved parts of each limit.
func (q *Queue) checkReserved(d *decoder, k string, known map[string]*Limit, sum map[string]int64) {
	if q.Reserved == 0 || !d.good(k) {
		return
	}
	if len(q.Limits) == 0 {
		d.clash(wrong("name limits, or take it out", "is a part of limits, and none is named"), k)
	}
	for _, name := range q.Limits {
		l := known[name]
		if l == nil {
			continue
		}
		amount, own := l.Overrides[""]
		if !own {
			amount = l.Amount
		}
		if sum[name] += q.Reserved; sum[name] >= amount {
			d.clash(wrong("leave something for the others", "with those before %d of %d of limit %s are reserved",
				sum[name], amount, quote(name)), k)
		}
	}
}

// cross checks the keys of a target against each other.
func (t *QueueTarget) cross(d *decoder, k string) {
	if (t.Certificate == "") != (t.Key == "") && d.good(k+"certificate", k+"key") {
		d.clash(wrong("name both files", "certificate and key go together"), k+"certificate", k+"key")
	}
	if strings.HasPrefix(t.URL, "http:") && t.CA+t.Certificate != "" && d.good(k+"url") {
		d.clash(wrong("write https://, or take it out", "belongs to a target of https"), k+"ca", k+"certificate")
	}
}

func cleanTarget(s string) (string, *mistake) {
	const hint = "write scheme, host, port and path, such as http://127.0.0.1:9000/orders"
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "":
		return "", wrong(hint, "is not the URL of a web server")
	case u.User != nil:
		return "", wrong(`take them out, and write headers: ["Authorization: …"]`, "has a user name or password")
	case u.Fragment != "" || strings.HasSuffix(s, "#"):
		return "", wrong("leave out what follows #", "has a fragment, which is never sent")
	}
	return s, nil
}

func cleanTargetHeader(s string) (string, *mistake) {
	name, _, ok := strings.Cut(s, ":")
	if !ok || strings.EqualFold(strings.TrimSpace(name), "host") {
		return "", wrong(`write "Name: value", such as "X-Source: headgate"`, "is not a header to send")
	}
	clean, m := cleanHeader(s)
	if m != nil {
		return "", wrong(`write "Name: value", such as "X-Source: headgate"`, "is not a header to send")
	}
	return clean, nil
}
