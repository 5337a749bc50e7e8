package holders

import (
	"crypto/sha256"
	"hash/crc32"
	"strings"
	"testing"
)

func TestAKeyNamesItsHolder(t *testing.T) {
	seen := map[string]bool{}
	for _, id := range []ID{0, 1, 1<<idBits - 1, newID(0), newID(shardCount - 1), newID(77)} {
		key, hash := newKey(id)
		if got, ok := Parse(key); !ok || got != id || hash != sha256.Sum256([]byte(key)) || seen[key] {
			t.Errorf("%s is the key of %v, %v", key, got, ok)
		}
		if got, ok := ParseID(id.String()); !ok || got != id || !strings.HasPrefix(key, Prefix+id.String()) {
			t.Errorf("%v is %v, %v", id, got, ok)
		}
		seen[key] = true
	}
	for _, text := range []string{"", "aaaaaaaaaaa", "aaaaaaaaaaaaa", "aaaaaaaaaaa1", "AAAAAAAAAAAA", "aaaaaaaaaaa_"} {
		if id, ok := ParseID(text); ok {
			t.Errorf("%q is %v", text, id)
		}
	}
}

// A key with one wrong letter, or two that changed places, is recognized without a look at any table.
func TestAMistypedKeyIsNoKey(t *testing.T) {
	key, _ := newKey(newID(3))
	wrong := []string{"", key[1:], key[:len(key)-1], key + "a", " " + key, strings.ToUpper(key),
		strings.Replace(key, Prefix, "hg_", 1), strings.Replace(key, "_", "-", 2)}
	for i := range key {
		for _, c := range letters + "01_A\x00\xff" {
			if b := byte(c); key[i] != b {
				wrong = append(wrong, key[:i]+string(b)+key[i+1:], key[:i]+string([]byte{b})+key[i+1:])
			}
		}
		if i > 0 && key[i] != key[i-1] {
			wrong = append(wrong, key[:i-1]+key[i:i+1]+key[i-1:i]+key[i+1:])
		}
	}
	for _, text := range wrong {
		if id, ok := Parse(text); ok {
			t.Errorf("%q is a key of %v", text, id)
		}
	}
}

// FuzzParse compares with the definition: a text is a key if it is written as one.
func FuzzParse(f *testing.F) {
	key, _ := newKey(newID(1))
	for _, text := range []string{key, key[:sumAt], key[:sumAt] + "aaaaaaa", "hgk_", "", strings.Repeat("a", keyLength)} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		id, ok := Parse(text)
		want := len(text) == keyLength && text[secretAt-1] == '_' && strings.HasPrefix(text, Prefix) &&
			strings.Trim(text[len(Prefix):secretAt-1]+text[secretAt:], letters) == ""
		if want {
			body := []byte(text[:sumAt])
			want = string(appendLetters(body, uint64(crc32.ChecksumIEEE(body)), sumLetters)) == text
		}
		if ok != want || ok && id.String() != text[len(Prefix):len(Prefix)+idLetters] {
			t.Errorf("%q: %v %v, want %v", text, id, ok, want)
		}
	})
}
