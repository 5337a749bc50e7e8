package config

import (
	"strings"
	"testing"
	"time"
)

// queued returns a file with a limit and one queue.
func queued(keys string) string {
	return "limits:\n  - {name: db, algorithm: sliding_log, amount: 100, window: 1s}\n" +
		"queues:\n  - {name: orders, " + keys + "}\n"
}

const target = "target: {url: 'http://127.0.0.1:9000/x'}"

// scheduled returns a queue with a schedule.
func scheduled(keys ...string) string {
	return target + ", schedules: [{" + strings.Join(keys, ", ") + "}]"
}

func TestAQueueNeedsATargetAlone(t *testing.T) {
	c, err := Parse("f", []byte(queued(target)))
	if err != nil || len(c.Queues) != 1 {
		t.Fatal(err)
	}
	q := c.Queues[0]
	if q.Name != "orders" || q.Target.Method != "POST" || q.Concurrency != 64 || !q.Spread ||
		q.KeyWindow != time.Hour || q.MaxAttempts != 20 || q.Target.Timeout != 30*time.Second {
		t.Errorf("got %+v", q)
	}
}

func TestAQueueIsPulled(t *testing.T) {
	for keys, want := range map[string]Queue{
		"pull: {}":                           {Pull: QueuePull{Lease: 30 * time.Second}, Concurrency: 10_000},
		"pull: {lease: 5m}, concurrency: 64": {Pull: QueuePull{Lease: 5 * time.Minute}, Concurrency: 64},
	} {
		c, err := Parse("f", []byte(queued(keys)))
		if err != nil {
			t.Errorf("%s: %v", keys, err)
			continue
		}
		if q := c.Queues[0]; q.Pull != want.Pull || q.Concurrency != want.Concurrency || q.Target.URL != "" {
			t.Errorf("%s: got %+v", keys, q)
		}
	}
}

func TestQueueMistakes(t *testing.T) {
	tests := []struct{ keys, want string }{
		{"weight: 1", "queues[0].target: is missing"},
		{"target: {method: PUT}", "queues[0].target.url: is missing"},
		{"target: {url: 'ftp://x'}", "queues[0].target.url: is not the URL of a web server"},
		{"target: {url: 'http://u:secret@x/'}", "has a user name or password"},
		{"target: {url: 'http://x/#a'}", "has a fragment"},
		{"target: {url: 'http://x/', method: HEAD}", "HEAD"},
		{"target: {url: 'http://x/', headers: [X]}", "is not a header to send"},
		{"target: {url: 'http://x/', headers: ['Host: a']}", "is not a header to send"},
		{"target: {url: 'http://x/', ca: a.pem}", "belongs to a target of https"},
		{"target: {url: 'https://x/', certificate: a.pem}", "certificate and key go together"},
		{"target: {url: 'https://x/', shared: true}", "stands beside no rate"},
		{target + ", limits: [bd]", "there is no limit"},
		{target + ", tenant_limits: [bd]", "there is no limit"},
		{target + ", weight: 0", "weight"},
		{target + ", tenants: {a: 0}", "0 is no weight"},
		{target + ", tenants: {a: 1001}", "1001 is no weight"},
		{target + ", concurrency: 10001", "concurrency"},
		{target + ", max_attempts: 0", "max_attempts"},
		{target + ", min_backoff: 10m", "10m is longer than 5m"},
		{target + ", key_window: 8d", "key_window"},
		{target + ", max_bytes: 5", "max_bytes"},
		{target + ", limit: [db]", "limit"},
		{target + ", completion: {}", "queues[0].completion.queue: is missing"},
		{target + ", completion: {queue: ordres}", `there is no queue "ordres"`},
		{target + ", completion: {queue: orders}", "queues[0].completion.queue: leads back to this queue"},
		{target + ", completion: {queue: a, on: []}", "completion.on: is empty"},
		{target + ", completion: {queue: a, on: [done]}", `no job ends as "done"`},
		{target + ", reserved: 5", "none is named"},
		{target + ", pull: {lease: 30s}", "queues[0].pull: stands beside target"},
		{"pull: {lease: 13h}", "pull.lease"},
		{"pull: {lease: 500ms}", "pull.lease"},
		{"pull: 30s", "pull"},
		{"pull:", "pull: has no value"},
		{"pull: {timeout: 30s}", "pull.timeout"},
		{"pull: {}, rate: {auto: true, min: 5, max: 50}", "workers claim the jobs"},
		{target + ", limits: [db], reserved: 100", "100 of 100"},
		{scheduled("cron: '0 3 * * *'", "job: {}"), "schedules[0].name: is missing"},
		{scheduled("name: n", "job: {}"), "schedules[0].cron: is missing"},
		{scheduled("name: n", "cron: '0 3 * * *'"), "schedules[0].job: is missing"},
		{scheduled("name: n", "job: {}", "cron: '0 3 * *'"), "schedules[0].cron: is not a cron line"},
		{scheduled("name: n", "job: {}", "cron: '0 0 31 2 *'"), "it never fires"},
		{scheduled("name: n", "job: {}", "cron: 'TZ=UTC 0 0 1 * *'"), "a time zone has no place in it"},
		{scheduled("name: n", "job: {}", "cron: '@every 5m'"), "@every"},
		{scheduled("name: n", "job: {}", "cron: 5"), "schedules[0].cron"},
		{scheduled("name: a/b", "job: {}", "cron: '@daily'"), "schedules[0].name"},
		{scheduled("name: n", "job: {}", "cron: '@daily'", "time_zone: Mars"), "Mars"},
		{scheduled("name: n", "job: {}", "cron: '@daily'", "time_zone: Local"), "names no time zone"},
		{scheduled("name: n", "job: {}", "cron: '@daily'", "time_zone: Europe/"+strings.Repeat("./", 70)+"Berlin"),
			"schedules[0].time_zone"},
		{scheduled("name: n", "job: {}", "cron: '@daily'", "missed: twice"), "schedules[0].missed"},
		{scheduled("name: n", "job: {}", "cron: '@daily'", "at: 5"), "schedules[0].at"},
		{scheduled("name: n", "job: {key: k}", "cron: '@daily'"), "those of each firing"},
		{scheduled("name: n", "job: {at: 2026-12-24T18:00:00Z}", "cron: '@daily'"), "those of each firing"},
		{scheduled("name: n", "job: {priority: 10}", "cron: '@daily'"), "the priority is 10"},
		{scheduled("name: n", "job: {priority: 1.5}", "cron: '@daily'"), "priority"},
		{scheduled("name: n", "job: {urgent: true}", "cron: '@daily'"), "urgent"},
		{scheduled("name: n", "job: {schedule: n}", "cron: '@daily'"), "schedule"},
		{scheduled("name: n", "job: {body: {a: 010}}", "cron: '@daily'"), "010, which JSON does not know"},
		{scheduled("name: n", "job: {body: {a: .inf}}", "cron: '@daily'"), "which JSON does not know"},
		{scheduled("name: n", "job: {body: {a: 1, a: 2}}", "cron: '@daily'"), "twice"},
		{scheduled("name: n", "job: text", "cron: '@daily'"), "schedules[0].job"},
		{scheduled("name: n", "job: [1]", "cron: '@daily'"), "schedules[0].job"},
		{scheduled("name: n", "job: {headers: {Headgate-Schedule: other}}", "cron: '@daily'"), "must not be set"},
		{target + ", schedules: {a: {}}", "schedules"},
		{target + ", schedules: [{name: n, job: {}, cron: '@daily'}, {name: n, job: {}, cron: '@daily'}]",
			"already the name"},
	}
	for _, tt := range tests {
		_, err := Parse("f", []byte(queued(tt.keys)))
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: got %v, want %q", tt.keys, err, tt.want)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("%s: the error has the password: %v", tt.keys, err)
		}
		for _, f := range Faults(err) {
			if f.Hint == "" || f.Line == 0 {
				t.Errorf("%s: no hint or no line: %+v", tt.keys, f)
			}
		}
	}
	twice := queued(target) + "  - {name: orders, " + target + "}\n"
	if _, err := Parse("f", []byte(twice)); err == nil || !strings.Contains(err.Error(), "already the name") {
		t.Errorf("two of a name: %v", err)
	}
}

func TestPaceIsTheFirstRateOfJobs(t *testing.T) {
	c, err := Parse("f", []byte(queued(target+", limits: [db]")))
	if err != nil {
		t.Fatal(err)
	}
	if l := c.Pace(&c.Queues[0]); l == nil || l.Amount != 100 {
		t.Errorf("got %+v", l)
	}
	c.Limits[0].Unit = "units"
	if l := c.Pace(&c.Queues[0]); l != nil {
		t.Errorf("of units: got %+v", l)
	}
}
