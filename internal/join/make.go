package join

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io/fs"
	"math/big"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/smallfile"
)

// These are the lifetimes of certificates in years. Chosen: a CA that outlives its cluster, and
// nodes that are renewed before the procedure is forgotten.
const (
	yearsOfCA   = 10
	yearsOfNode = 2

	// early makes a certificate valid before it was created, for machines whose clocks are slow.
	early = time.Hour
)

// These are the files beside the join files.
const (
	caFile   = "ca.pem"
	keyFile  = "ca.key" // allows its holder to create nodes
	planFile = "cluster.json"
)

// A written is a file to be written.
type written struct {
	name string
	mode fs.FileMode
	b    []byte
}

// A plan is a Plan with the format version, as stored in its file.
type plan struct {
	Version int `json:"headgate_cluster"`
	Plan
}

// Init creates a cluster in dir, which it creates: the CA, a join file for each store node, and one
// that all workers may share. The plan must have no faults. It returns the names of the files, and
// overwrites none. The error is an [*hint.Error].
func Init(dir string, p Plan, now time.Time) ([]string, error) {
	ca, err := newCA(p, now)
	if err != nil {
		return nil, smallfile.Wrong(dir, "no CA can be made: "+err.Error(), "try again")
	}
	b, err := json.MarshalIndent(plan{Version, p}, "", "  ")
	if err != nil {
		return nil, smallfile.Wrong(dir, err.Error(), "report this as a bug")
	}
	files := []written{
		{caFile, 0o644, ca.pem},
		{keyFile, 0o600, ca.keyPEM},
		{planFile, 0o644, append(b, '\n')},
	}
	for _, name := range append(append([]string{}, p.Store...), sharedWorker) {
		w, err := ca.joinFile(name, now)
		if err != nil {
			return nil, smallfile.Wrong(dir, "no certificate can be made: "+err.Error(), "try again")
		}
		files = append(files, w)
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, unwritable(dir, err)
	}
	return writeAll(dir, files)
}

// Node creates another join file in the dir of Init: for a store node of the plan, for the shared
// worker, or for a worker with its own name. It returns the name of the file, and overwrites none.
// The error is an [*hint.Error] or a [*Fault].
func Node(dir, name string, now time.Time) (string, error) {
	ca, err := openCA(dir, now)
	if err != nil {
		return "", err
	}
	if name != sharedWorker {
		if f := CheckNode(name); f != nil {
			return "", f
		}
	}
	w, err := ca.joinFile(name, now)
	if err != nil {
		return "", smallfile.Wrong(dir, "no certificate can be made: "+err.Error(), "try again")
	}
	names, err := writeAll(dir, []written{w})
	if err != nil {
		return "", err
	}
	return names[0], nil
}

// An authority signs the certificates of the nodes of a plan.
type authority struct {
	plan   Plan
	cert   *x509.Certificate
	key    *ecdsa.PrivateKey
	pem    []byte
	keyPEM []byte
}

// newCA makes the CA of a data center.
func newCA(p Plan, now time.Time) (*authority, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	ca := &authority{plan: p}
	template := &x509.Certificate{
		SerialNumber:          serial,
		Subject:               pkix.Name{CommonName: "headgate " + p.Datacenter},
		NotBefore:             now.Add(-early),
		NotAfter:              now.AddDate(yearsOfCA, 0, 0),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageCRLSign,
		// The CA is valid only for this data center, wherever it is trusted.
		PermittedDNSDomains:         []string{p.domain()[1:]},
		PermittedDNSDomainsCritical: true,
	}
	ca.key, ca.keyPEM, err = newKey()
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, ca.key.Public(), ca.key)
	if err != nil {
		return nil, err
	}
	ca.pem = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der})
	ca.cert, err = x509.ParseCertificate(der)
	return ca, err
}

// openCA reads the files that Init wrote.
func openCA(dir string, now time.Time) (*authority, error) {
	const hint = "name the folder that headgate cluster init has made with --dir"
	ca := &authority{}
	file := filepath.Join(dir, planFile)
	b, err := smallfile.ReadPublic(file)
	if err != nil {
		return nil, lost(err, hint)
	}
	var p plan
	if err := decode(file, b, &p); err != nil {
		return nil, lost(err, hint)
	}
	ca.plan = p.Plan
	if faults := p.Faults(); p.Version != Version || len(faults) > 0 {
		if len(faults) > 0 {
			return nil, smallfile.Wrong(file, faults[0].Error(), faults[0].Hint)
		}
		return nil, smallfile.Wrong(file, "is not the plan of a cluster", hint)
	}
	if ca.pem, err = smallfile.ReadPublic(filepath.Join(dir, caFile)); err != nil {
		return nil, lost(err, hint)
	}
	if ca.keyPEM, err = smallfile.ReadSecret(filepath.Join(dir, keyFile)); err != nil {
		return nil, lost(err, hint)
	}
	return ca, ca.parse(dir, now)
}

// lost adds a better hint to the error of a missing file.
func lost(err error, do string) error {
	if errors.Is(err, fs.ErrNotExist) {
		return &hint.Error{Text: err.Error(), Do: do, Err: err, Quiet: true}
	}
	return err
}

// parse reads certificate and key of the CA.
func (ca *authority) parse(dir string, now time.Time) error {
	block, _ := pem.Decode(ca.pem)
	file := filepath.Join(dir, caFile)
	if block == nil {
		return smallfile.Wrong(file, "holds no certificate", "restore it from a copy")
	}
	var err error
	if ca.cert, err = x509.ParseCertificate(block.Bytes); err != nil {
		return smallfile.Wrong(file, "holds no certificate that can be read", "restore it from a copy")
	}
	if f := validity(ca.cert, now, "make a new cluster with headgate cluster init"); f != nil {
		return smallfile.Wrong(file, f.Problem, f.Hint)
	}
	file = filepath.Join(dir, keyFile)
	if block, _ = pem.Decode(ca.keyPEM); block == nil {
		return smallfile.Wrong(file, "holds no private key", "restore it from a copy")
	}
	key, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	ec, ok := key.(*ecdsa.PrivateKey)
	switch {
	case err != nil || !ok:
		return smallfile.Wrong(file, "holds no private key that can be read", "restore it from a copy")
	case !ec.PublicKey.Equal(ca.cert.PublicKey):
		return smallfile.Wrong(file, "is not the key of "+caFile, "restore both from one copy")
	}
	ca.key = ec
	return nil
}

// joinFile creates the join file of a node with a new key.
func (ca *authority) joinFile(name string, now time.Time) (written, error) {
	domain := ca.plan.domain()
	names := []string{name + domain}
	f := File{Version: Version, Plan: ca.plan, Node: name, CA: string(ca.pem)}
	switch {
	case slices.Contains(ca.plan.Store, name):
		names = append(names, anyStore+domain)
		f.Listen = ca.plan.Peers[name]
	case name == sharedWorker:
		f.Node = ""
	}
	serial, err := newSerial()
	if err != nil {
		return written{}, err
	}
	key, keyPEM, err := newKey()
	if err != nil {
		return written{}, err
	}
	end := now.AddDate(yearsOfNode, 0, 0)
	if end.After(ca.cert.NotAfter) {
		end = ca.cert.NotAfter
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		DNSNames:     names,
		NotBefore:    now.Add(-early),
		NotAfter:     end,
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}, ca.cert, key.Public(), ca.key)
	if err != nil {
		return written{}, err
	}
	f.Cert = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}))
	f.Key = string(keyPEM)
	b, err := json.MarshalIndent(&f, "", "  ")
	return written{name + ".join", 0o600, append(b, '\n')}, err
}

func newSerial() (*big.Int, error) {
	// 128 random bits: at most 20 octets are allowed, and at least 64 bits should
	// be random (RFC 5280 section 4.1.2.2).
	return rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 128))
}

func newKey() (*ecdsa.PrivateKey, []byte, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, nil, err
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return nil, nil, err
	}
	return key, pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

// writeAll writes all files or none, and overwrites none.
func writeAll(dir string, files []written) ([]string, error) {
	var names []string
	for _, w := range files {
		name := filepath.Join(dir, w.name)
		if err := writeNew(name, w); err != nil {
			for _, done := range names {
				os.Remove(done)
			}
			return nil, err
		}
		names = append(names, name)
	}
	return names, nil
}

func writeNew(name string, w written) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, w.mode)
	if err != nil {
		return unwritable(name, err)
	}
	_, err = f.Write(w.b)
	err = errors.Join(err, f.Sync(), f.Close())
	if err != nil {
		return unwritable(name, errors.Join(err, os.Remove(name)))
	}
	return nil
}

func unwritable(name string, err error) error {
	problem, hint := "cannot be written: "+err.Error(), "name a folder that may be written with --dir"
	p, ok := errors.AsType[*fs.PathError](err)
	switch {
	case errors.Is(err, fs.ErrExist):
		problem, hint = "is there already", "move it away first, or name another folder with --dir"
	case ok:
		problem = "cannot be written: " + p.Err.Error()
	}
	return smallfile.From(err, name, problem, hint)
}
