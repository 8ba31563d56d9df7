// Package values looks at single texts: whether one is random, a secret, or computed from another.
package values

import (
	"encoding/base64"
	"encoding/hex"
	"regexp"
	"strings"
	"unicode"

	"github.com/trommel-dev/trommel/internal/facts"
)

// MinRandom is how many characters a random value has at least, so that two of them are not equal by accident.
const MinRandom = 8

// Different is how much is between the common beginning and the common end of two texts, in bytes of the shorter one.
func Different(a, b string) int {
	n := min(len(a), len(b))
	from := 0
	for from < n && a[from] == b[from] {
		from++
	}
	to := 0
	for to < n-from && a[len(a)-1-to] == b[len(b)-1-to] {
		to++
	}
	return n - from - to
}

var (
	looksLikeTime = regexp.MustCompile(`\d{4}-\d{2}-\d{2}|\d{2}:\d{2}:\d{2}`)
	armored       = regexp.MustCompile(`^\s*-----BEGIN `)
)

// LooksRandom reports whether a text is random: not a time, number, address, word or sentence. Those may be equal in
// two fields because a controller was there at the same time, or in the same phase, and differ after a fault.
func LooksRandom(s string) bool {
	if len(s) < MinRandom || looksLikeTime.MatchString(s) || facts.HasAddress(s) {
		return false
	}
	if armored.MatchString(s) {
		return true
	}
	digits, letters, turns := 0, 0, 0
	wasUpper := false
	for i, r := range s {
		switch {
		case unicode.IsSpace(r):
			return false
		case unicode.IsDigit(r):
			digits++
		case unicode.IsLetter(r):
			letters++
			if upper := unicode.IsUpper(r); i > 0 && upper != wasUpper {
				turns++
			}
			wasUpper = unicode.IsUpper(r)
		}
	}
	return letters > 0 && (digits > 0 || turns*3 > len(s))
}

// IsSum reports whether a text is a hash in hexadecimal digits, or its beginning, or the base64 encoding of the hash.
// It may have the name of the hash before it, as in "sha256:…".
func IsSum(text string, sum []byte) bool {
	_, short, ok := strings.Cut(text, ":")
	if !ok {
		short = text
	}
	return len(short) >= MinRandom && strings.HasPrefix(hex.EncodeToString(sum), strings.ToLower(short)) ||
		Encodes(text, sum)
}

// Encodes reports whether a text is the base64 encoding of data.
func Encodes(s string, data []byte) bool {
	return s == base64.StdEncoding.EncodeToString(data) || s == base64.RawStdEncoding.EncodeToString(data) ||
		s == base64.URLEncoding.EncodeToString(data) || s == base64.RawURLEncoding.EncodeToString(data)
}

// maxSecret is the length of the longest value that counts as a password or key. A longer value was rendered.
const maxSecret = 256

var (
	// token is a value without structure. Certificates and web tokens have some: they are issued again whenever that
	// seems right, by many controllers at each of their starts. So do URLs, whose other parts may change.
	token = regexp.MustCompile(`^[!-+\--9<-z|~]+$`)
	// derived are words in the names of what is computed from something that may change step by step.
	derived = regexp.MustCompile(`(?i)hash|sum|digest|sha\d|md5|revision|version|config`)
)

// IsToken reports whether a random value of that name has no structure, and does not seem to be computed.
func IsToken(name, value string) bool {
	return !derived.MatchString(name) && len(value) <= maxSecret && token.MatchString(value) &&
		!strings.HasPrefix(value, "eyJ")
}

var (
	nameOfObject = regexp.MustCompile(`^[a-z0-9]+(?:[-.][a-z0-9]+)+$`)
	// digest is as long as MD5, SHA-1, SHA-2 and SHA-3 make them.
	digest = regexp.MustCompile(`^(?:[0-9a-fA-F]{32}|[0-9a-fA-F]{40}|[0-9a-fA-F]{56}|(?:[0-9a-fA-F]{32}){2,4})$`)
)

// LooksComputed reports whether a value looks like a hash or like the name of an object.
func LooksComputed(value string) bool {
	return digest.MatchString(value) || nameOfObject.MatchString(value)
}
