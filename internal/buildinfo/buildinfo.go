// Package buildinfo identifies this build of Trommel.
package buildinfo

import (
	"crypto/sha256"
	"encoding/hex"
	"io"
	"os"
	"runtime/debug"
	"strings"
	"sync"
)

// Version returns the version of Trommel that this program contains, "(devel)" if it is not known.
func Version() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "(devel)"
	}
	for _, m := range append(info.Deps, &info.Main) {
		if m.Path == "github.com/trommel-dev/trommel" && m.Version != "" {
			return m.Version
		}
	}
	return "(devel)"
}

// Name names this build of Trommel: its version or, if that does not say what was built, also a hash of the
// executable.
func Name(version string) (string, error) {
	if version != "" && version != "(devel)" && !strings.Contains(version, "+dirty") {
		return version, nil
	}
	hash, err := executableHash()
	return version + " " + hash, err
}

// executableHash is the beginning of a hash of this process's executable.
var executableHash = sync.OnceValues(func() (string, error) {
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	digest, err := FileDigest(path)
	if err != nil {
		return "", err
	}
	return digest[:20], nil
})

// FileDigest is the SHA-256 digest of a file's content, in hexadecimal.
func FileDigest(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	hash := sha256.New()
	if _, err := io.Copy(hash, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(hash.Sum(nil)), nil
}
