// Command controlplane is a whole Kubernetes control plane in one executable: etcd, kube-apiserver,
// kube-controller-manager, kube-scheduler and KWOK. The component is chosen by the name under which the executable
// is called or, failing that, by the first argument.
package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/spf13/pflag"
	"go.etcd.io/etcd/server/v3/etcdmain"
	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/component-base/version"
	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllermanager "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kwokconfig "sigs.k8s.io/kwok/pkg/config"
	kwok "sigs.k8s.io/kwok/pkg/kwok/cmd"
	kwoklog "sigs.k8s.io/kwok/pkg/log"
	kwoksignals "sigs.k8s.io/kwok/pkg/utils/signals"
)

// components maps a component's name to its main function, which reads os.Args as the component's own.
var components = map[string]func() int{
	"etcd": func() int {
		etcdmain.Main(os.Args)
		return 0
	},
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllermanager.NewControllerManagerCommand()) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kwok":                    runKWOK,
}

func main() {
	watchParent()
	name := strings.TrimSuffix(filepath.Base(os.Args[0]), ".exe")
	run := components[name]
	if run == nil && len(os.Args) > 1 {
		// What components print of themselves names the component, not this executable.
		run = components[os.Args[1]]
		if run != nil {
			os.Args = os.Args[1:]
		}
	}
	switch {
	case run != nil:
		os.Exit(run())
	case len(os.Args) == 2 && os.Args[1] == "--version":
		printVersions(os.Stdout)
	default:
		fmt.Fprintf(os.Stderr, "usage: %s %s [flags]\n", name, strings.Join(names(), "|"))
		os.Exit(2)
	}
}

func names() []string {
	var all []string
	for name := range components {
		all = append(all, name)
	}
	slices.Sort(all)
	return all
}

func printVersions(w io.Writer) {
	fmt.Fprintf(w, "kubernetes %s\n", version.Get().GitVersion)
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return
	}
	for _, dep := range info.Deps {
		switch dep.Path {
		case "go.etcd.io/etcd/server/v3":
			fmt.Fprintf(w, "etcd %s\n", dep.Version)
		case "sigs.k8s.io/kwok":
			fmt.Fprintf(w, "kwok %s\n", dep.Version)
		}
	}
}

// runKWOK does what KWOK's own main does: its configuration is read before its command is built, by a flag set that
// passes over the command's flags.
func runKWOK() int {
	flags := pflag.NewFlagSet("global", pflag.ContinueOnError)
	flags.ParseErrorsAllowlist.UnknownFlags = true
	flags.Usage = func() {}
	ctx, logger := kwoklog.InitFlags(kwoksignals.SetupSignalContext(), flags)
	ctx, err := kwokconfig.InitFlags(ctx, flags)
	if err != nil {
		logger.Error("Read configuration", "err", err)
		return 1
	}
	command := kwok.NewCommand(ctx)
	// The other components' --version flag is registered for the whole process, and cobra stumbles over its type.
	command.Version = ""
	command.PersistentFlags().AddFlagSet(flags)
	if err := command.ExecuteContext(ctx); err != nil {
		logger.Error("Exit", "err", err)
		return 1
	}
	return 0
}
