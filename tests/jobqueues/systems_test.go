package jobqueues

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hibiken/asynq"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/headgate/headgate/internal/loopback"
)

// program builds a program that the module of headgate names.
func program(t *testing.T, name, pkg string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), name)
	build := exec.Command("go", "build", "-o", file, pkg)
	build.Dir = "../.."
	output(t, build)
	return file
}

// A gate is headgate: jobs are put and claimed by HTTP.
type gate struct {
	server
	url, token string
	http       http.Client
}

func startHeadgate(t *testing.T) *gate {
	t.Helper()
	dir, admin := t.TempDir(), loopback.Free(t)
	bin, file := program(t, "headgate", "./cmd/headgate"), filepath.Join(dir, "headgate.yaml")
	text := fmt.Sprintf(`data: %s/data
listen: %s
admin_listen: %s
limits:
  - {name: db, algorithm: sliding_log, amount: 1000000, window: 1s}
queues:
  - {name: jobs, limits: [db], pull: {lease: 30s}, spread: false}
`, dir, loopback.Free(t), admin)
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	g := &gate{url: "http://" + admin + "/v1/queues/jobs"}
	g.http.Transport = &http.Transport{MaxIdleConnsPerHost: 2 * workers}
	g.token = output(t, exec.Command(bin, "token", "create", "--scope", "write", "--data", filepath.Join(dir, "data")))
	g.server = start(t, exec.Command(bin, "run", "--config", file))
	err := await(t.Context(), func() bool {
		var s struct{ Name string }
		return g.do(t.Context(), "GET", "", "", nil, &s) == nil && s.Name != ""
	})
	if err != nil {
		t.Fatal(err)
	}
	return g
}

func (g *gate) do(ctx context.Context, method, path, kind string, body []byte, into any) error {
	r, err := http.NewRequestWithContext(ctx, method, g.url+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	r.Header.Set("Authorization", "Bearer "+g.token)
	r.Header.Set("Content-Type", kind)
	answer, err := g.http.Do(r)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	b, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", answer.Status, b)
	}
	if err == nil && into != nil {
		err = json.Unmarshal(b, into)
	}
	return err
}

func (g *gate) put(ctx context.Context, n int) error {
	return share(n, producers, batch, func(from, to int) error {
		var b bytes.Buffer
		for i := from; i < to; i++ {
			fmt.Fprintf(&b, "{\"text\":\"%s\"}\n", text(i))
		}
		return g.do(ctx, "POST", "/jobs", "application/x-ndjson", b.Bytes(), nil)
	})
}

func (g *gate) work(ctx context.Context, n int) error {
	var done atomic.Int64
	return share(workers, workers, 1, func(int, int) error {
		for done.Load() < int64(n) {
			var got struct{ Jobs []struct{ Receipt string } }
			ask := fmt.Appendf(nil, `{"max": %d, "wait": "100ms"}`, batch)
			if err := g.do(ctx, "POST", "/claim", "application/json", ask, &got); err != nil {
				return err
			}
			if len(got.Jobs) == 0 {
				continue
			}
			var said struct {
				Receipts []string `json:"receipts"`
			}
			for i := range got.Jobs {
				said.Receipts = append(said.Receipts, got.Jobs[i].Receipt)
			}
			b, err := json.Marshal(said)
			if err != nil {
				return err
			}
			var is struct{ Count int64 }
			if err = g.do(ctx, "POST", "/ack", "application/json", b, &is); err != nil {
				return err
			}
			done.Add(is.Count)
		}
		return nil
	})
}

// text is the text of a job: 100 bytes.
func text(i int) string { return fmt.Sprintf("%0100d", i) }

// A stream is a work queue of NATS JetStream.
type stream struct {
	server
	js       jetstream.JetStream
	consumer jetstream.Consumer
}

func startNATS(t *testing.T, syncs string) *stream {
	t.Helper()
	addr, dir := loopback.Free(t), t.TempDir()
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "nats.conf")
	config := fmt.Sprintf("host: %s\nport: %s\njetstream {store_dir: %q, sync_interval: %s}\n", host, port,
		filepath.Join(dir, "data"), syncs)
	if err = os.WriteFile(file, []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	s := &stream{server: start(t, exec.Command(
		program(t, "nats-server", "github.com/nats-io/nats-server/v2"), "-c", file))}
	var conn *nats.Conn
	err = await(t.Context(), func() bool {
		conn, err = nats.Connect("nats://" + addr)
		return err == nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	if s.js, err = jetstream.New(conn, jetstream.WithPublishAsyncMaxPending(producers*batch)); err != nil {
		t.Fatal(err)
	}
	of, err := s.js.CreateStream(t.Context(), jetstream.StreamConfig{Name: "jobs", Subjects: []string{"jobs"},
		Retention: jetstream.WorkQueuePolicy, Storage: jetstream.FileStorage})
	if err != nil {
		t.Fatal(err)
	}
	s.consumer, err = of.CreateConsumer(t.Context(), jetstream.ConsumerConfig{Durable: "workers",
		AckPolicy: jetstream.AckExplicitPolicy, AckWait: 30 * time.Second,
		MaxAckPending: 10 * workers * batch})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *stream) put(ctx context.Context, n int) error {
	return share(n, producers, batch, func(from, to int) error {
		var all []jetstream.PubAckFuture
		for i := from; i < to; i++ {
			f, err := s.js.PublishAsync("jobs", []byte(text(i)))
			if err != nil {
				return err
			}
			all = append(all, f)
		}
		for _, f := range all {
			select {
			case <-f.Ok():
			case err := <-f.Err():
				return err
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		return nil
	})
}

func (s *stream) work(ctx context.Context, n int) error {
	var done atomic.Int64
	err := share(workers, workers, 1, func(int, int) error {
		for done.Load() < int64(n) {
			got, err := s.consumer.Fetch(batch, jetstream.FetchMaxWait(100*time.Millisecond))
			if err != nil {
				return err
			}
			for m := range got.Messages() {
				if err := m.Ack(); err != nil {
					return err
				}
				done.Add(1)
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	return await(ctx, func() bool {
		is, err := s.consumer.Info(ctx)
		return err == nil && is.NumPending == 0 && is.NumAckPending == 0
	})
}

// An asynqQueue is a queue of asynq in Redis. It takes jobs one by one.
type asynqQueue struct {
	server
	to asynq.RedisClientOpt
}

func startAsynq(t *testing.T, syncs string) *asynqQueue {
	t.Helper()
	addr := loopback.Free(t)
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	a := &asynqQueue{to: asynq.RedisClientOpt{Addr: addr, PoolSize: 100}}
	a.server = start(t, exec.Command("redis-server", "--bind", host, "--port", port, "--dir", t.TempDir(),
		"--save", "", "--appendonly", "yes", "--appendfsync", syncs))
	client := asynq.NewClient(a.to)
	defer client.Close()
	if err := await(t.Context(), func() bool { return client.Ping() == nil }); err != nil {
		t.Fatal(err)
	}
	return a
}

// each is how many of its calls are under way at once: a batch of the others'.
const atOnce = producers * batch / 8

func (a *asynqQueue) put(ctx context.Context, n int) error {
	client := asynq.NewClient(a.to)
	defer client.Close()
	return share(n, atOnce, 1, func(i, _ int) error {
		_, err := client.EnqueueContext(ctx, asynq.NewTask("job", []byte(text(i))))
		return err
	})
}

func (a *asynqQueue) work(ctx context.Context, n int) error {
	var done atomic.Int64
	s := asynq.NewServer(a.to, asynq.Config{Concurrency: atOnce, LogLevel: asynq.FatalLevel,
		TaskCheckInterval: 10 * time.Millisecond})
	err := s.Start(asynq.HandlerFunc(func(context.Context, *asynq.Task) error {
		done.Add(1)
		return nil
	}))
	if err != nil {
		return err
	}
	err = await(ctx, func() bool { return done.Load() >= int64(n) })
	s.Shutdown() // ends what is under way
	look := asynq.NewInspector(a.to)
	defer look.Close()
	is, failed := look.GetQueueInfo("default")
	if failed == nil && is.Size > 0 {
		failed = fmt.Errorf("%d jobs are left", is.Size)
	}
	return errors.Join(err, failed)
}

// A riverQueue is a queue of River in PostgreSQL.
type riverQueue struct {
	server
	pool *pgxpool.Pool
	done atomic.Int64
}

// A jobArgs is what a job says.
type jobArgs struct {
	Text string `json:"text"`
}

// Kind implements river.JobArgs.
func (jobArgs) Kind() string { return "job" }

func startRiver(t *testing.T) *riverQueue {
	t.Helper()
	addr := loopback.Free(t)
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "river") // t.TempDir is closed to other users
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	as := unprivileged(t, dir)
	run := func(name string, args ...string) *exec.Cmd {
		cmd := exec.Command(name, args...)
		cmd.Dir, cmd.SysProcAttr = dir, as
		return cmd
	}
	data := filepath.Join(dir, "data")
	output(t, run("initdb", "--pgdata", data, "--username", "river", "--auth", "trust"))
	q := &riverQueue{server: start(t, run("postgres", "-D", data, "-h", host, "-p", port, "-k", dir,
		"-c", "max_connections=50", "-c", "shared_buffers=256MB"))}
	err = await(t.Context(), func() bool {
		q.pool, err = pgxpool.New(t.Context(), "postgres://river@"+addr+"/postgres?pool_max_conns=30")
		return err == nil && q.pool.Ping(t.Context()) == nil
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(q.pool.Close)
	migrator, err := rivermigrate.New(riverpgxv5.New(q.pool), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err = migrator.Migrate(t.Context(), rivermigrate.DirectionUp, nil); err != nil {
		t.Fatal(err)
	}
	return q
}

// unprivileged gives a folder to another user: PostgreSQL does not start as root.
func unprivileged(t *testing.T, dir string) *syscall.SysProcAttr {
	t.Helper()
	if os.Getuid() != 0 {
		return nil
	}
	who, err := user.Lookup("nobody")
	if err != nil {
		t.Fatal(err)
	}
	uid, err := strconv.Atoi(who.Uid)
	if err != nil {
		t.Fatal(err)
	}
	gid, err := strconv.Atoi(who.Gid)
	if err != nil {
		t.Fatal(err)
	}
	if err = os.Chown(dir, uid, gid); err != nil {
		t.Fatal(err)
	}
	return &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
}

func (q *riverQueue) put(ctx context.Context, n int) error {
	client, err := river.NewClient(riverpgxv5.New(q.pool), &river.Config{})
	if err != nil {
		return err
	}
	return share(n, producers, batch, func(from, to int) error {
		var all []river.InsertManyParams
		for i := from; i < to; i++ {
			all = append(all, river.InsertManyParams{Args: jobArgs{text(i)}})
		}
		_, err := client.InsertManyFast(ctx, all)
		return err
	})
}

func (q *riverQueue) work(ctx context.Context, n int) error {
	q.done.Store(0)
	all := river.NewWorkers()
	river.AddWorker(all, river.WorkFunc(func(context.Context, *river.Job[jobArgs]) error {
		q.done.Add(1)
		return nil
	}))
	// The numbers are those of River's own benchmark.
	client, err := river.NewClient(riverpgxv5.New(q.pool), &river.Config{Workers: all,
		FetchCooldown: 2 * time.Millisecond, FetchPollInterval: 20 * time.Millisecond,
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 2_000}}})
	if err != nil {
		return err
	}
	if err = client.Start(ctx); err != nil {
		return err
	}
	err = await(ctx, func() bool { return q.done.Load() >= int64(n) })
	if err = errors.Join(err, client.Stop(ctx)); err != nil { // all are completed then
		return err
	}
	left := 0
	err = q.pool.QueryRow(ctx, "select count(*) from river_job where state != 'completed'").Scan(&left)
	if err == nil && left > 0 {
		err = fmt.Errorf("%d are left", left)
	}
	return err
}
