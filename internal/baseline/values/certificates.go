package values

import (
	"encoding/pem"
	"slices"
)

// Certificates are those of a text that consists of PEM blocks.
func Certificates(text string) (all []string) {
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

// Includes reports whether all of some certificates are among others.
func Includes(all, some []string) bool {
	return !slices.ContainsFunc(some, func(c string) bool { return !slices.Contains(all, c) })
}

// Shares reports whether one of some certificates is among others.
func Shares(all, some []string) bool {
	return slices.ContainsFunc(some, func(c string) bool { return slices.Contains(all, c) })
}
