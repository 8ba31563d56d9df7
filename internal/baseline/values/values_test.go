package values

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"slices"
	"testing"
)

func TestLooksRandom(t *testing.T) {
	for text, want := range map[string]bool{
		"hGx72kQpWs91":                        true,
		"a1b2c3d4e5":                          true,
		"-----BEGIN CERTIFICATE-----\nMIIB":   true,
		"short1":                              false,
		"12345678901":                         false,
		"replicas":                            false,
		"2026-01-02T15:04:05Z":                false,
		"10.96.0.12:8080":                     false,
		"the 2nd of them":                     false,
		"metrics-server":                      false,
		"0a1b2c3d-0000-4000-8000-00000000000": true,
	} {
		if got := LooksRandom(text); got != want {
			t.Errorf("%q: %t", text, got)
		}
	}
}

func TestComputedValues(t *testing.T) {
	const text = "hGx72kQpWs91"
	sum := sha256.Sum256([]byte(text))
	digits := hex.EncodeToString(sum[:])
	for value, want := range map[string]bool{
		digits:             true,
		digits[:MinRandom]: true,
		digits[:4]:         false,
		"sha256:" + digits: true,
		base64.StdEncoding.EncodeToString(sum[:]): true,
		text: false,
	} {
		if got := IsSum(value, sum[:]); got != want {
			t.Errorf("%q is the hash: %t", value, got)
		}
	}
	if !Encodes("aGk", []byte("hi")) || !Encodes("aGk=", []byte("hi")) || Encodes("hi", []byte("hi")) {
		t.Error("base64 with and without padding")
	}
	for value, want := range map[string]bool{digits: true, "web-0.db": true, text: false} {
		if got := LooksComputed(value); got != want {
			t.Errorf("%q looks computed: %t", value, got)
		}
	}
}

func TestIsToken(t *testing.T) {
	for _, tt := range []struct {
		name, value string
		want        bool
	}{
		{"password", "hGx72kQpWs91", true},
		{"config-hash", "hGx72kQpWs91", false},
		{"token", "eyJhbGciOiJSUzI1NiJ9", false},
		{"url", "https://user:hGx72kQpWs91@db/x", false},
	} {
		if got := IsToken(tt.name, tt.value); got != tt.want {
			t.Errorf("%s %q: %t", tt.name, tt.value, got)
		}
	}
}

func TestWords(t *testing.T) {
	for name, want := range map[string][]string{
		"lastErrorMessage": {"last", "error", "message"},
		"ready-replicas":   {"ready", "replicas"},
		"URL":              {"url"},
	} {
		if got := Words(name); !slices.Equal(got, want) {
			t.Errorf("%s: %q", name, got)
		}
	}
}
