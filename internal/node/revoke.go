package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/api"
	"github.com/headgate/headgate/internal/store"
)

// Parameters of revoked certificates. Chosen: more than a cluster uses in ten years.
const (
	revokedKey  = "revoked" // the record; also the file in the data folder
	revokedWait = 5 * time.Second
	mostRevoked = 4096
)

// checkRevoked rejects an invalid list.
func checkRevoked(list []api.Revoked) error {
	if len(list) > mostRevoked {
		return fmt.Errorf("%d revoked certificates, and %d are the most", len(list), mostRevoked)
	}
	serial := regexp.MustCompile(`^[0-9a-f]{1,40}$`)
	for i := range list {
		if !serial.MatchString(list[i].Serial) {
			return errors.New("a serial number among the revoked certificates is damaged")
		}
	}
	return nil
}

// revocations returns the document of the cluster's revoked certificates. Store nodes follow it.
func (k *Node) revocations() *store.Doc[[]api.Revoked] {
	return &store.Doc[[]api.Revoked]{Store: k.store, Key: revokedKey, Decode: decodeRevoked,
		Bus: k.Bus, Topic: revokedKey, Log: k.log}
}

func decodeRevoked(b []byte) (list []api.Revoked, err error) {
	if err = json.Unmarshal(b, &list); err == nil {
		err = checkRevoked(list)
	}
	return list, err
}

// revokedHere reads the copy in the data folder, which is in force before the records can be read.
// If the copy cannot be read, the list is missing until the records can be read.
func (k *Node) revokedHere() []string {
	b, err := os.ReadFile(k.Folder.Path(revokedKey))
	var list []api.Revoked
	if err == nil {
		list, err = decodeRevoked(b)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		k.log.Warn("copy of the list of revoked certificates not read: they are refused when the records "+
			"can be read", "file", k.Folder.Path(revokedKey), "error", err)
	}
	return serialsOf(list)
}

func serialsOf(list []api.Revoked) (serials []string) {
	for i := range list {
		serials = append(serials, list[i].Serial)
	}
	return serials
}

// followRevoked applies the list in the records at this store node.
func (k *Node) followRevoked(ctx context.Context) {
	if k.Engine == nil || k.Bus == nil {
		return
	}
	ctx, stop := context.WithTimeout(ctx, revokedWait)
	defer stop()
	list, _, err := k.revocations().Load(ctx)
	if err != nil {
		if ctx.Err() == nil {
			k.log.Warn("revoked certificates not looked at yet", "error", err)
		}
		return
	}
	k.Engine.Revoke(serialsOf(list))
	if slices.Equal(serialsOf(list), serialsOf(k.revoked)) {
		return
	}
	b, err := json.Marshal(list)
	if err == nil {
		err = k.Folder.Write(revokedKey, b)
	}
	if err != nil {
		k.log.Warn("list of revoked certificates not copied to the data folder", "error", err)
		return
	}
	k.revoked = list
	k.log.Info("revoked certificates are refused", "certificates", len(list))
}

// Revoke rejects a certificate of the cluster from now on, and makes a new sealing key. It returns
// api.ErrAlone, an api.Refused or an api.NotKept.
func (k *Node) Revoke(ctx context.Context, r api.Revoked) (got api.RotateResult, err error) {
	switch {
	case k.Bus == nil || k.About.Engine != "":
		return got, api.ErrAlone
	case k.Worker:
		return got, AtStoreNode("a worker revokes no certificate")
	case r.Serial == k.serial:
		return got, &api.RejectedError{Reason: "this is the certificate of the store node that you ask",
			Do: "ask another store node, or give this one a new join file first"}
	}
	if err := checkRevoked([]api.Revoked{r}); err != nil {
		return got, &api.RejectedError{Reason: fmt.Sprintf("%q is not a serial number", r.Serial),
			Do: "write it as hexadecimal digits, or name the join file"}
	}
	if err := k.addRevoked(ctx, r); err != nil {
		return got, &api.NotPersistedError{Err: err, Reason: "the list of revoked certificates could not be written",
			Do: "say it again when the store nodes answer (headgate cluster status)"}
	}
	k.pokeRevoked()
	k.log.Warn("certificate revoked", "serial", r.Serial, "node", r.Node, "by", r.By)
	return k.RotateKeys(time.Now())
}

// addRevoked writes the record, and informs the other store nodes.
func (k *Node) addRevoked(ctx context.Context, r api.Revoked) error {
	ctx, stop := context.WithTimeout(ctx, revokedWait)
	defer stop()
	_, err := k.revocations().Edit(ctx, func(list *[]api.Revoked) (bool, error) {
		if slices.Contains(serialsOf(*list), r.Serial) {
			return false, nil
		}
		*list = append(*list, r)
		return true, checkRevoked(*list)
	})
	return err
}

// pokeRevoked makes run read the list now. It does not block.
func (k *Node) pokeRevoked() {
	select {
	case k.revokedNew <- struct{}{}:
	default:
	}
}

// serveWorkers lets workers read and write what they are allowed to, and makes them use the current
// keys, until stop.
func (k *Node) serveWorkers() (stop func(), err error) {
	if k.Engine == nil || k.Bus == nil {
		return func() {}, nil
	}
	deaf, err := k.Bus.Subscribe(revokedKey, func([]byte) { k.pokeRevoked() })
	if err != nil {
		return nil, err
	}
	desk := &store.Proxy{Conn: k.Config.NATS, Records: k.store, OnWriteFailure: k.Engine.Heal, Log: k.log}
	closed, err := desk.Serve()
	if err != nil {
		deaf()
		return nil, err
	}
	silent, err := k.Bus.ServeGroup(sealingName, k.answerSealing)
	if err != nil {
		closed()
		deaf()
		return nil, err
	}
	return func() { silent(); closed(); deaf() }, nil
}

// answerSealing sends a worker the keys with which it seals and opens: those of this data center,
// or the copies of another one. It sends nothing if they cannot be read.
func (k *Node) answerSealing(ctx context.Context, name []byte) []byte {
	ctx, stop := context.WithTimeout(ctx, keysWait)
	defer stop()
	if string(name) != keysName && !strings.HasPrefix(string(name), keysName+".") {
		return nil
	}
	keys, _, err := keysDoc(k.store, string(name)).Load(ctx)
	if err != nil {
		if k.said.Due("sealing") {
			k.log.Warn("worker not told the sealing keys", "error", err)
		}
		return nil
	}
	b, err := json.Marshal(keys)
	if err != nil {
		return nil
	}
	return b
}

// CompareAndSwap implements store.Store. It always fails: a worker makes no keys.
func (askedKeys) CompareAndSwap(context.Context, string, uint64, []byte) (uint64, error) {
	return 0, store.ErrDenied
}
