package fleet

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"strings"
)

// Build names this build of Trommel, which all machines of a campaign have: its version or, if that does not say what
// was built, also the digest of the executable.
func Build(version string) (string, error) {
	if version != "" && version != "(devel)" && !strings.Contains(version, "+dirty") {
		return version, nil
	}
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	return version + " " + hex.EncodeToString(hash.Sum(nil)[:10]), nil
}
