package doctor

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/headgate/headgate/embedded"
	"github.com/headgate/headgate/internal/platform"
	"github.com/headgate/headgate/internal/slot"
	"github.com/headgate/headgate/internal/store"
)

const (
	maxCopy    = 1 << 30 // a larger engine is not copied; chosen
	engineWait = 30 * time.Second
)

// records checks the second copies. What a damaged copy lacks may still be in the engine, which is
// the next check.
func (x *examiner) records() {
	switch x.keeps() {
	case inCluster:
		x.ok("no second copies: store nodes have the records in their engines alone, see copies")
		return
	case nothing:
		x.ok("none are kept here")
		return
	}
	all, err := store.ReadCopies(filepath.Join(x.cfg.Data, "records"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		x.say(Warning, "there are none yet", "headgate run makes them")
		return
	case err != nil:
		x.say(Fault, err.Error(), "run this as headgate's user, who owns the data folder")
		return
	}
	x.copies = all
	good := true
	for i := range all {
		c := &all[i]
		bad := "records/" + strings.Join(c.Damaged(), " and records/")
		switch {
		case len(c.Damaged()) == 0:
		case c.Whole():
			good = false
			x.say(Warning, fmt.Sprintf("%s is damaged, the other copy of %s is whole", bad, about(c.Key)),
				"look at the disk (dmesg, smartctl); headgate writes it anew by itself")
		default:
			good = false
			x.say(Warning, fmt.Sprintf("%s: no copy of %s is whole", bad, about(c.Key)),
				"see engine below: what it holds is written anew by itself")
		}
		if err := decode(c.Key, c.Value); err != nil {
			good = false
			x.say(Fault, fmt.Sprintf("%s: %v", about(c.Key), err),
				"run the headgate that wrote it; this one leaves it as it is")
		}
	}
	if good {
		x.ok("%d, with whole copies", len(all))
	}
}

// decode decodes the record of a room as headgate would.
func decode(key string, value []byte) error {
	if value == nil || !strings.HasPrefix(key, counterKey) {
		return nil
	}
	return new(slot.Record).UnmarshalBinary(value)
}

// about returns the owner of the record with this key, as text.
func about(key string) string {
	if room, ok := strings.CutPrefix(key, counterKey); ok {
		return "the record of room " + room
	}
	if room, ok := strings.CutPrefix(key, "live."); ok {
		return "the live changes of room " + room
	}
	return "record " + key
}

// engine opens a copy of the engine and compares its content with the second copies.
func (x *examiner) engine(ctx context.Context) {
	dir := filepath.Join(x.cfg.Data, "engine")
	switch keeps := x.keeps(); {
	case keeps == inCluster && !x.oneStore():
		x.say(Skipped, "not looked at: what it lacks it takes from the other store nodes, see copies", "")
		return
	case keeps == nothing:
		x.ok("none here")
		return
	}
	if x.running {
		x.say(Skipped, "not looked at while headgate runs: a copy of it would be torn",
			"see headgate above for what it says; stop it to look into its engine")
		return
	}
	if _, err := os.Stat(dir); errors.Is(err, fs.ErrNotExist) {
		if len(x.copies) == 0 {
			x.ok("there is none yet")
			return
		}
		x.ok("there is none: the next start fills it from the second copies")
		x.lost(nil)
		return
	}
	copied, err := x.copyEngine(dir)
	if err != nil {
		x.say(Skipped, err.Error(), "")
		return
	}
	defer os.RemoveAll(copied)
	held, damage, err := open(ctx, filepath.Join(copied, "engine"))
	if err != nil {
		x.say(Fault, "the engine cannot be opened: "+err.Error(), "see the log of headgate run")
		return
	}
	if x.keeps() == inCluster {
		x.onlyEngine(held, damage)
		return
	}
	if damage != "" {
		x.say(Warning, "the engine is damaged: "+damage, "headgate run mends it, or puts it aside and fills "+
			"a new one from the second copies; look at the disk (dmesg, smartctl)")
	}
	if x.compare(held) && damage == "" {
		x.ok("it holds what the copies hold")
	}
}

// onlyEngine checks an engine that has no second copies: that of a cluster with one store node.
func (x *examiner) onlyEngine(held map[string]value, damage string) {
	const do = "keep the folder as it is, and look at the disk (dmesg, smartctl); no other node has the records"
	if damage != "" {
		x.say(Fault, "the engine is damaged: "+damage, do)
		return
	}
	for key, v := range held {
		if err := decode(key, v.body); err != nil {
			x.say(Fault, fmt.Sprintf("%s: %v", about(key), err), do)
			return
		}
	}
	x.ok("it opens, records: %d", len(held))
}

// A value is what the engine stores under a key.
type value struct {
	revision uint64
	body     []byte
}

// compare reports what the next start will repair, and what is lost.
func (x *examiner) compare(held map[string]value) (good bool) {
	good = true
	for i := range x.copies {
		c := &x.copies[i]
		if v := held[c.Key]; c.Whole() && (c.Revision > v.revision ||
			v.body == nil || c.Revision == v.revision && !bytes.Equal(c.Value, v.body)) {
			good = false
			x.say(Warning, "the engine has lost "+about(c.Key)+" in its newest form, the second copy has it",
				"nothing is lost: headgate run repairs it; look at the disk (dmesg, smartctl)")
		}
	}
	return x.lost(held) && good
}

// lost reports the records that exist nowhere.
func (x *examiner) lost(held map[string]value) (none bool) {
	none = true
	for i := range x.copies {
		c := &x.copies[i]
		v, ok := held[c.Key]
		if len(c.Damaged()) == 0 || c.Whole() || ok && decode(c.Key, v.body) == nil {
			continue
		}
		none = false
		dir := x.cfg.Data
		x.say(Fault, fmt.Sprintf("%s is lost: neither the engine nor a copy holds it", about(c.Key)),
			fmt.Sprintf("restore a backup: headgate restore --aside --data %s FILE; or let it begin anew: "+
				"rm -r %s* %s", dir, filepath.Join(dir, "records", store.RecordName(c.Key)+"~"),
				filepath.Join(dir, "engine")))
	}
	return none
}

// copyEngine copies the engine to a folder where it may be written.
func (x *examiner) copyEngine(dir string) (string, error) {
	n := bytesIn(dir)
	if n > x.cfg.maxCopy {
		return "", fmt.Errorf("not looked at: it is %s, and is opened as a copy up to %s", size(n),
			size(x.cfg.maxCopy))
	}
	temp := x.cfg.Temp
	if temp == "" {
		temp = os.TempDir()
	}
	if free, _, err := platform.Space(temp); err != nil || free < uint64(n)+noSpace {
		return "", fmt.Errorf("not looked at: there is no room for a copy of %s in %s", size(n), temp)
	}
	to, err := os.MkdirTemp(temp, "headgate-doctor-")
	if err != nil {
		return "", fmt.Errorf("not looked at: %w", err)
	}
	if err := os.CopyFS(filepath.Join(to, "engine"), os.DirFS(dir)); err != nil {
		os.RemoveAll(to)
		return "", fmt.Errorf("not looked at: %w", err)
	}
	return to, nil
}

// open starts an engine in a copy of its folder and reads its content. damage describes what it
// could not read.
func open(ctx context.Context, dir string) (held map[string]value, damage string, err error) {
	ctx, stop := context.WithTimeout(ctx, engineWait)
	defer stop()
	said := &hearing{}
	e, err := embedded.Open(ctx, embedded.Config{Dir: dir, Log: slog.New(said)})
	if err != nil {
		return nil, "", err
	}
	held, err = values(ctx, e)
	e.Close()
	if aside, _ := filepath.Glob(dir + ".damaged-*"); len(aside) > 0 {
		return held, "it does not start on its folder", nil
	}
	if err != nil { // headgate run would put it aside
		return nil, err.Error(), nil
	}
	return held, said.first(), nil
}

// A hearing is a log handler that stores the warnings of an engine.
type hearing struct {
	mu   sync.Mutex
	said []string
}

// Enabled implements slog.Handler.
func (h *hearing) Enabled(_ context.Context, l slog.Level) bool { return l >= slog.LevelWarn }

// Handle implements slog.Handler.
func (h *hearing) Handle(_ context.Context, r slog.Record) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "says" {
			h.said = append(h.said, strings.TrimSpace(a.Value.String()))
		}
		return true
	})
	return nil
}

// WithAttrs implements slog.Handler.
func (h *hearing) WithAttrs([]slog.Attr) slog.Handler { return h }

// WithGroup implements slog.Handler.
func (h *hearing) WithGroup(string) slog.Handler { return h }

// first returns the first warning. It skips warnings about a missing or empty index: a kill causes
// them, and the engine rebuilds the index from its blocks.
func (h *hearing) first() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, s := range h.said {
		if !strings.Contains(strings.ToLower(s), "stream state") {
			return s
		}
	}
	return ""
}

func values(ctx context.Context, e *embedded.Server) (map[string]value, error) {
	s, err := store.OpenNATS(ctx, store.NATSConfig{Conn: e.Conn()})
	if err != nil {
		return nil, err
	}
	defer s.Close()
	keys, err := s.Keys(ctx, "")
	if err != nil {
		return nil, err
	}
	held := map[string]value{}
	for _, key := range keys {
		b, revision, err := s.Load(ctx, key)
		if err != nil {
			return nil, fmt.Errorf("record %q: %w", key, err)
		}
		held[key] = value{revision, b}
	}
	return held, nil
}
