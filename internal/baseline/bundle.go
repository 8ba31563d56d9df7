package baseline

import (
	"encoding/base64"
	"slices"

	"github.com/trommel-dev/trommel/internal/baseline/values"
)

// stillHolds reports whether a relation holds for certificates although the texts differ. It returns false while
// relations are learned, and for texts that have no certificate in common. A bundle of authorities that has got a new
// one keeps the old one for a while, and so do the clients that have the bundle, one after the other. A certificate
// that an old authority has signed is good as long as the bundle has both.
func (f *filter) stillHolds(is Is, field, of string, p population) bool {
	if f.exact {
		return false
	}
	if is == isBase64 {
		plain, err := base64.StdEncoding.DecodeString(field)
		if err != nil {
			return false
		}
		field = string(plain)
	}
	own, others := values.Certificates(field), values.Certificates(of)
	if len(own) == 0 || len(others) == 0 {
		return false
	}
	switch is {
	case isEqual:
		return values.Includes(own, others) || values.Includes(others, own)
	case isBase64: // the bundle that others trust: all of it
		return values.Includes(own, others)
	case isContents: // a certificate with those of its authorities
		return values.Shares(own, others) || slices.ContainsFunc(f.bundlesIn(p), func(bundle []string) bool {
			return values.Includes(bundle, others) && values.Shares(bundle, own)
		})
	}
	return false
}

// bundlesIn are the bundles of certificates in a run, as far as relations are about them.
func (f *filter) bundlesIn(p population) (all [][]string) {
	seen := map[Place]bool{}
	for _, r := range f.ref.Relations {
		for _, at := range []Place{r.Field, r.Of} {
			if seen[at] || r.Is != isEqual && r.Is != isBase64 && r.Is != isContents {
				continue
			}
			seen[at] = true
			for _, m := range p[at.Object] {
				if bundle := values.Certificates(f.textsOf(m.key, m.object)[at.Field].value); len(bundle) > 1 {
					all = append(all, bundle)
				}
			}
		}
	}
	return all
}
