package holders

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"
)

func someRecord() record {
	at := time.UnixMilli(1_800_000_000_123).UTC()
	r := record{version: 7}
	for i := range 3 {
		h := Holder{ID: newID(5)&^0xf + ID(i), Name: "Ada", Plan: "pro", Created: at}
		_, h.hash = newKey(h.ID)
		if i == 1 {
			h.Note, h.Revoked = "invoice 17", at
			_, h.old = newKey(h.ID)
			h.OldKey = at.Add(time.Hour)
		}
		r.holders = append(r.holders, h)
	}
	r.holders[1].ID, r.holders[2].ID = r.holders[0].ID+1, r.holders[0].ID+2
	return r
}

func TestARecordIsReadAsItWasWritten(t *testing.T) {
	want := someRecord()
	b, err := encodeRecord(want)
	if err != nil {
		t.Fatal(err)
	}
	got, err := decodeRecord(b)
	if err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("%+v %v, want %+v", got, err, want)
	}
	for i := range b {
		if _, err := decodeRecord(b[:i]); !errors.Is(err, errRecord) {
			t.Errorf("%d of %d bytes: %v", i, len(b), err)
		}
	}
	if _, err := decodeRecord(append(b, 0)); !errors.Is(err, errRecord) {
		t.Error("a byte too many")
	}
	want.holders[0], want.holders[1] = want.holders[1], want.holders[0]
	if b, err = encodeRecord(want); err == nil {
		_, err = decodeRecord(b)
	}
	if !errors.Is(err, errRecord) {
		t.Errorf("holders out of order: %v", err)
	}
}

// A full record of the longest texts fits into one value of the store.
func TestAFullRecordFits(t *testing.T) {
	h := Holder{Name: strings.Repeat("n", mostName), Plan: strings.Repeat("p", mostPlan), Note: strings.Repeat("x", mostNote),
		Created: time.Now(), Revoked: time.Now(), OldKey: time.Now()}
	r := record{version: 1 << 60, holders: make([]Holder, mostInShard+perShard)}
	for i := range r.holders {
		r.holders[i] = h
		r.holders[i].ID = ID(i)
	}
	b, err := encodeRecord(r)
	if err != nil || len(b) > 1<<20-1024 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
	if got, err := decodeRecord(b); err != nil || len(got.holders) != len(r.holders) {
		t.Errorf("%d holders, %v", len(got.holders), err)
	}
	if err := r.add([]Made{{}}); !errors.Is(err, errAgain) {
		t.Errorf("one more: %v", err)
	}
}

// FuzzRecord looks for bytes that are read as something that cannot be written again.
func FuzzRecord(f *testing.F) {
	b, _ := encodeRecord(someRecord())
	f.Add(b)
	f.Add([]byte{recordFormat, 0, 0})
	f.Add([]byte{recordFormat, 1, 255, 255, 3})
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := decodeRecord(b)
		if err != nil {
			return
		}
		again, err := encodeRecord(r)
		if err != nil {
			t.Fatal(err)
		}
		back, err := decodeRecord(again)
		if err != nil || !reflect.DeepEqual(back, r) {
			t.Errorf("%+v is read again as %+v, %v", r, back, err)
		}
		if third, _ := encodeRecord(back); !bytes.Equal(third, again) {
			t.Error("written in another way")
		}
		newShard(&r)
	})
}

func TestTextsOfHolders(t *testing.T) {
	key, _ := newKey(1)
	for _, h := range []Holder{{}, {Name: strings.Repeat("n", mostName+1)}, {Name: "a\nb"}, {Name: "\xff"}, {Name: "\u202ea"},
		{Name: "a", Note: strings.Repeat("n", mostNote+1)}, {Name: "a", Note: "key " + key}, {Name: key},
		{Name: "a", Plan: "prp"}, {Name: "a", Plan: strings.Repeat("p", 100)}} {
		var e *InvalidError
		if err := h.Check([]string{"pro"}); !errors.As(err, &e) || e.Do == "" || strings.Contains(e.Reason, key) {
			t.Errorf("%+v: %v", h, err)
		}
	}
	if err := (&Holder{Name: "Ada & Søn, 東京", Plan: "pro", Note: "—"}).Check([]string{"pro"}); err != nil {
		t.Error(err)
	}
}
