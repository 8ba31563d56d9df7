package certificate

import (
	"bytes"
	"crypto/x509"
	"maps"
	"testing"
	"time"
)

// A certificate is used until 120 days before its end. The next one's Secret trusts both, and no third.
func TestRenewal(t *testing.T) {
	names, now := []string{"a.b.svc", "c.b.svc"}, time.Now()
	first, err := issue(nil, names, now)
	if err != nil {
		t.Fatal(err)
	}
	second, err := issue(first[authority], names, now)
	if err != nil {
		t.Fatal(err)
	}
	third, err := issue(second[authority], names, now)
	if err != nil {
		t.Fatal(err)
	}
	with := func(data map[string][]byte, key string, value []byte) map[string][]byte {
		data = maps.Clone(data)
		data[key] = value
		return data
	}
	const day = 24 * time.Hour
	for _, tt := range []struct {
		name  string
		data  map[string][]byte
		names []string
		after time.Duration
		ok    bool
	}{
		{"new", first, names, 0, true},
		{"one of its names", first, names[1:], 0, true},
		{"another name", first, []string{"x.b.svc"}, 0, false},
		{"244 days later", first, names, 244 * day, true},
		{"246 days later", first, names, 246 * day, false},
		{"an empty Secret", nil, names, 0, false},
		{"another key", with(first, privateKey, second[privateKey]), names, 0, false},
		{"another authority", with(first, authority, nil), names, 0, false},
		{"the next one", second, names, 0, true},
		{"the first one, trusted by the next one", with(first, authority, second[authority]), names, 0, true},
		{"the second one, trusted by the third one", with(second, authority, third[authority]), names, 0, true},
		{"the first one, not by the third one", with(first, authority, third[authority]), names, 0, false},
	} {
		pair, err := parse(tt.data, tt.names, now.Add(tt.after))
		if (err == nil) != tt.ok || tt.ok != (pair != nil) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
	if n := bytes.Count(third[authority], []byte("BEGIN CERTIFICATE")); n != 2 {
		t.Errorf("%d authorities are trusted", n)
	}
	// The key that could issue others is nowhere.
	for key, value := range first {
		if n := bytes.Count(value, []byte("PRIVATE KEY")); n > 0 != (key == privateKey) {
			t.Errorf("%s has %d keys", key, n)
		}
	}
	pair, err := parse(first, names, now)
	if err != nil {
		t.Fatal(err)
	}
	if l := pair.Leaf; l.IsCA || len(l.ExtKeyUsage) != 1 || l.ExtKeyUsage[0] != x509.ExtKeyUsageServerAuth {
		t.Errorf("CA %t, usage %v", l.IsCA, l.ExtKeyUsage)
	}
}
