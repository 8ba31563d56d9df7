package embedded

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"

	"github.com/trommel-dev/trommel/internal/cluster"
)

// Config configures a cluster.
type Config = cluster.Config

// MaxAPIServers is the largest Config.APIServers.
const MaxAPIServers = 5

var nameRE = regexp.MustCompile(`^[a-z0-9]([a-z0-9-]{0,38}[a-z0-9])?$`)

// withDefaults sets defaults and validates the configuration.
func withDefaults(c Config) (Config, error) {
	if c.Name == "" {
		c.Name = "c-" + cluster.RandomHex(4)
	}
	if c.APIServers == 0 {
		c.APIServers = 3
	}
	if first := "apiserver-1"; !slices.Contains(c.Needed, first) {
		c.Needed = append([]string{first}, c.Needed...) // the infrastructure needs it
	}
	switch {
	case c.Nodes == 0:
		c.Nodes = 3
	case c.Nodes < 0:
		c.Nodes = 0
	}
	if c.Progress == nil {
		c.Progress = func(string) {}
	}
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	var errs []error
	if !nameRE.MatchString(c.Name) {
		errs = append(errs, nameError(c.Name))
	}
	if c.APIServers < 1 || c.APIServers > MaxAPIServers {
		errs = append(errs, fmt.Errorf("%d API servers: must be 1 to %d", c.APIServers, MaxAPIServers))
	}
	if info, err := os.Stat(c.Binary); err != nil {
		errs = append(errs, fmt.Errorf("control plane executable: %w", err))
	} else if info.IsDir() || info.Mode()&0o111 == 0 {
		errs = append(errs, fmt.Errorf("control plane executable: %s is not executable", c.Binary))
	}
	var err error
	if c.Binary, err = filepath.Abs(c.Binary); err != nil {
		errs = append(errs, err)
	}
	return c, errors.Join(errs...)
}

func nameError(name string) error {
	return fmt.Errorf("cluster name %q: must be up to 40 lower case letters, digits and dashes", name)
}
