package flags

import (
	"os"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/trommel-dev/trommel/instrumentation"
)

// KubernetesVersion adds the flag that selects one of the control planes that can be built.
func KubernetesVersion(f *pflag.FlagSet, version *string) {
	f.StringVar(version, "kubernetes-version", instrumentation.KubernetesVersion,
		"`version` of the control plane: "+strings.Join(instrumentation.KubernetesVersions(), ", ")+
			"; a minor version is enough")
}

// FromSource adds the flag that makes this process, and those that it starts, take no control plane from a release.
func FromSource(f *pflag.FlagSet) {
	f.BoolFunc("build", "build the control plane from source, even if the release has it", func(text string) error {
		on, err := strconv.ParseBool(text)
		if err != nil || !on {
			return err
		}
		return os.Setenv(instrumentation.EnvBuild, "1")
	})
}
