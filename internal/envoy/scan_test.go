package envoy

import (
	"bytes"
	"runtime"
	"testing"

	pb "github.com/envoyproxy/go-control-plane/envoy/service/ratelimit/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// A raw sends the bytes of a message unchanged.
type raw struct{}

func (raw) Marshal(v any) ([]byte, error)      { return *v.(*[]byte), nil }
func (raw) Unmarshal(data []byte, v any) error { *v.(*[]byte) = bytes.Clone(data); return nil }
func (raw) Name() string                       { return "proto" }

// Empty descriptors and entries take two bytes in a message, but fifty times as much memory.
func TestEmptyPartsTakeNoMemory(t *testing.T) {
	entry := []byte{1<<3 | 2, 0}
	descriptor := func(entries int) []byte {
		return protowire.AppendBytes([]byte{2<<3 | 2}, bytes.Repeat(entry, entries))
	}
	for name, message := range map[string][]byte{
		"descriptors":     bytes.Repeat(descriptor(0), 400_000),
		"entries":         descriptor(400_000),
		"entries of many": bytes.Repeat(descriptor(100), 1000),
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, g *rig) {
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				var answer []byte
				err := g.conn.Invoke(t.Context(), pb.RateLimitService_ShouldRateLimit_FullMethodName,
					&message, &answer, grpc.ForceCodec(raw{}))
				runtime.ReadMemStats(&after)
				if status.Code(err) != codes.InvalidArgument {
					t.Errorf("told %v", err)
				}
				if n := after.TotalAlloc - before.TotalAlloc; n > uint64(8*len(message)+2<<20) {
					t.Errorf("%d bytes for a message of %d", n, len(message))
				}
				g.wants("OK: OK", g.ask(0, of("free", "1"))) // others are served
			})
		})
	}
}
