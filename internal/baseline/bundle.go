package baseline

import (
	"encoding/base64"
	"encoding/pem"
	"slices"
)

// certificates are those of a text that consists of PEM blocks.
func certificates(text string) (all []string) {
	for rest := []byte(text); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return all
		}
		if block.Type == "CERTIFICATE" {
			all = append(all, string(block.Bytes))
		}
	}
}

// stillHolds reports whether a relation holds of certificates although the texts differ; not while relations are
// learned. A bundle of authorities that has got a new one keeps the old one for a while, and so do those who have the
// bundle, one after the other; a certificate that an old authority has signed is good as long as the bundle has both.
// Nothing is excused otherwise of texts that have no certificate in common.
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
	own, others := certificates(field), certificates(of)
	if len(own) == 0 || len(others) == 0 {
		return false
	}
	switch is {
	case isEqual:
		return includes(own, others) || includes(others, own)
	case isBase64: // what others are told to trust: all of it
		return includes(own, others)
	case isContents: // a certificate with those of its authorities
		return shares(own, others) || slices.ContainsFunc(f.bundlesIn(p), func(bundle []string) bool {
			return includes(bundle, others) && shares(bundle, own)
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
				if bundle := certificates(f.textsOf(m.key, m.object)[at.Field].value); len(bundle) > 1 {
					all = append(all, bundle)
				}
			}
		}
	}
	return all
}

// includes reports whether all of some certificates are among others, and shares, whether one of them is.
func includes(all, some []string) bool {
	return !slices.ContainsFunc(some, func(c string) bool { return !slices.Contains(all, c) })
}

func shares(all, some []string) bool {
	return slices.ContainsFunc(some, func(c string) bool { return slices.Contains(all, c) })
}
