package doctor

import (
	"archive/tar"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/datadir"
	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/store"
)

// A backup is a tar.gz. The manifest comes first and lists all that follows:
//
//	manifest.json   format, version, time, SHA-256 of each member
//	format          of the data folder
//	records/KEY     the value of a record
//	keys/NNN.key    sealing keys
//	tokens.json     hashes of API tokens, when there are any
const (
	manifestName = "manifest.json"
	formatName   = "format"
	tokensName   = "tokens.json"
	recordsDir   = "records/"
	keysDir      = "keys/"
)

// backupFormat is the format of the backups that this program writes and reads.
const backupFormat = 1

// These constants limit what is read, so that a file that is not a backup cannot use up the memory.
// Chosen: a record is at most 1 MB and in practice 5 KB, and a thousand tokens are 300 KB.
const (
	maxMember  = 2 << 20
	maxMembers = 20_000
	maxTotal   = 512 << 20
	maxPadding = 1 << 20 // tar ends with blocks of zeros
)

// A manifest lists what is in a backup.
type manifest struct {
	Format  int       `json:"backup_format"`
	Version string    `json:"version"` // the headgate that made it
	MadeAt  time.Time `json:"made_at"`
	Running bool      `json:"running"` // a headgate was running in the folder
	Members []member  `json:"members"`
}

// A member is one file of a backup.
type member struct {
	Name    string    `json:"name"`
	Bytes   int       `json:"bytes"`
	SHA256  string    `json:"sha256"`
	Written time.Time `json:"written_at,omitzero"` // of a record

	body []byte
}

func (m *member) seal() {
	sum := sha256.Sum256(m.body)
	m.Bytes, m.SHA256 = len(m.body), hex.EncodeToString(sum[:])
}

// in returns the members of a folder, such as keysDir.
func (m *manifest) in(dir string) (some []*member) {
	for i := range m.Members {
		if strings.HasPrefix(m.Members[i].Name, dir) {
			some = append(some, &m.Members[i])
		}
	}
	return some
}

func (m *manifest) find(name string) *member {
	at := slices.IndexFunc(m.Members, func(x member) bool { return x.Name == name })
	if at < 0 {
		return nil
	}
	return &m.Members[at]
}

// write writes the backup. All members get the time of the backup.
func (m *manifest) write(w io.Writer) error {
	for i := range m.Members {
		m.Members[i].seal()
	}
	head, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	z := gzip.NewWriter(w)
	t := tar.NewWriter(z)
	put := func(name string, b []byte) error {
		err := t.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o600,
			Size: int64(len(b)), ModTime: m.MadeAt})
		if err != nil {
			return err
		}
		_, err = t.Write(b)
		return err
	}
	if err := put(manifestName, append(head, '\n')); err != nil {
		return err
	}
	for i := range m.Members {
		if err := put(m.Members[i].Name, m.Members[i].body); err != nil {
			return err
		}
	}
	return errors.Join(t.Close(), z.Close())
}

var errNoBackup = errors.New("it is not a backup of headgate")

// readManifest reads a whole backup and checks it against the manifest. It must contain all listed
// members and nothing else, and the hash of each member must match.
func readManifest(r io.Reader) (*manifest, error) {
	z, err := gzip.NewReader(r)
	if err != nil {
		return nil, errNoBackup
	}
	left := &io.LimitedReader{R: z, N: maxTotal}
	t := tar.NewReader(left)
	name, b, err := next(t)
	if err != nil || name != manifestName {
		return nil, errors.Join(errNoBackup, err)
	}
	m := &manifest{}
	if err := json.Unmarshal(b, m); err != nil || m.Format < 1 {
		return nil, errNoBackup
	}
	if m.Format > backupFormat {
		return nil, &hint.Error{Text: fmt.Sprintf("the backup is of a newer headgate (%s, format %d)",
			m.Version, m.Format), Do: "restore it with that headgate"}
	}
	if err := m.check(); err != nil {
		return nil, err
	}
	for i := range m.Members {
		x := &m.Members[i]
		if name, x.body, err = next(t); err != nil {
			return nil, fmt.Errorf("%s: %w", x.Name, cut(err))
		}
		is := member{body: x.body}
		if is.seal(); name != x.Name || is.SHA256 != x.SHA256 || is.Bytes != x.Bytes {
			return nil, fmt.Errorf("%s is not what the manifest says", x.Name)
		}
	}
	if _, err := t.Next(); err != io.EOF {
		return nil, errors.New("there is more in it than the manifest says")
	}
	// Read to the end of the stream, where its checksum is.
	if n, err := io.Copy(io.Discard, io.LimitReader(left, maxPadding)); err != nil || n == maxPadding {
		return nil, errors.New("its end is damaged")
	}
	return m, nil
}

// cut returns a clear error for a truncated file.
func cut(err error) error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return errors.New("the backup is cut off")
	}
	return err
}

// next reads the next regular file.
func next(t *tar.Reader) (name string, b []byte, err error) {
	h, err := t.Next()
	if err != nil {
		return "", nil, err
	}
	if h.Typeflag != tar.TypeReg || h.Size > maxMember {
		return "", nil, fmt.Errorf("%q is not a plain file of at most 2 MB", h.Name)
	}
	b, err = io.ReadAll(t)
	return h.Name, b, err
}

// check returns an error if the manifest lists a file that does not belong in a data folder.
func (m *manifest) check() error {
	if len(m.Members) > maxMembers {
		return errors.New("it lists too many files")
	}
	seen := map[string]bool{}
	for i := range m.Members {
		name := m.Members[i].Name
		if !allowed(name) || seen[name] {
			return fmt.Errorf("%q does not belong into a backup", name)
		}
		seen[name] = true
	}
	if !seen[formatName] || len(m.in(keysDir)) == 0 {
		return errors.New("it holds no format or no keys")
	}
	return nil
}

func allowed(name string) bool {
	switch dir, file := path.Split(name); dir {
	case "":
		return name == formatName || name == tokensName
	case keysDir:
		_, err := datadir.KeyID(file)
		return err == nil
	case recordsDir:
		key, err := store.ParseRecordName(file)
		return err == nil && key != ""
	}
	return false
}
