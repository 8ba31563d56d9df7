// Package controllers is the command line of the controllers of disruptions.
package controllers

import (
	"os"
	"path/filepath"
	"strconv"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/trommel-dev/trommel/chaos/config"
	"github.com/trommel-dev/trommel/chaos/controller"
	"github.com/trommel-dev/trommel/chaos/controller/manager"
	"github.com/trommel-dev/trommel/internal/controllers"
	"github.com/trommel-dev/trommel/internal/notify"
)

// NewCommand returns the command trommel-chaos, to be run by itself or below another one. injector is the subcommand of
// the same executable that is the injector. with sets what flags do not, such as an installer.
func NewCommand(injector string, with ...func(*manager.Options)) *cobra.Command {
	o := manager.Options{Config: controller.Config{Nets: controller.DefaultNets()}}
	var here bool
	var passed notify.Flags
	cmd := controllers.Command(&cobra.Command{
		Use:   "trommel-chaos",
		Short: "Run the controllers of disruptions (chaos.trommel.dev)",
		Example: `  trommel-chaos --leader-elect --metrics=127.0.0.1:8080 ` +
			`--injector-image=registry.example.com/trommel-injector:v1
  trommel-chaos --kubeconfig ~/.kube/config --delete-only`,
	}, &o.Options, func(to *rest.Config, log logr.Logger) (_ ctrl.Manager, err error) {
		o.Logger = log
		if o.Notify, err = passed.Options(); err != nil {
			return nil, err
		}
		if here {
			self, err := os.Executable()
			if err != nil {
				return nil, err
			}
			o.Command = []string{self, injector}
			if o.Journal == "" {
				// Other users of the machine have directories of their own.
				o.Journal = filepath.Join("/tmp", "trommel-disruptions-"+strconv.Itoa(os.Getuid()))
			}
		}
		for _, set := range with {
			set(&o)
		}
		return manager.New(to, o)
	})
	f := cmd.Flags()
	f.StringVar(&o.Namespace, "namespace", "trommel-chaos", "namespace in which chaos pods run")
	f.StringVar(&o.Image, "injector-image", config.InjectorImage, "image of chaos pods")
	f.StringSliceVar(&o.Command, "injector-command", []string{"/trommel-injector"}, "command of chaos pods")
	f.BoolVar(&here, "injector-here", false, "chaos pods run this executable by its path on this machine, for nodes "+
		"whose pods are its processes")
	cmd.MarkFlagsMutuallyExclusive("injector-here", "injector-command")
	f.StringToStringVar(&o.PodAnnotations, "pod-annotation", nil, "an annotation of chaos pods (may be repeated)")
	f.StringVar(&o.ServiceAccount, "injector-service-account", "disruption-injector",
		"service account of chaos pods, which get no token of it")
	f.StringVar(&o.APIServiceAccount, "api-injector-service-account", "disruption-api-injector",
		"service account of chaos pods of the kinds nodeFailure and podReplacement")
	f.StringVar(&o.PriorityClass, "injector-priority-class", "trommel-disruption-injector",
		"priority class of chaos pods")
	f.StringVar(&o.Simulated, "process-node", "", "node that runs the chaos pods of targets on simulated nodes")
	f.StringVar(&o.Journal, "journal", "", "directory on nodes for the injectors' journals "+
		"(default /var/lib/trommel-chaos, or, with --injector-here, /tmp/trommel-disruptions-<user ID>)")
	f.BoolVar(&o.Privileged, "privileged", true, "give chaos pods the privileges that faults on real nodes need")
	f.DurationVar(&o.KeepFor, "keep", 0, "how long disruptions are kept that are over (default 15m)")
	passed.Register(f)
	f.StringVar((*string)(&o.Mode), "mode", string(controller.ModeSingle), "single: know no other clusters; parent: "+
		"have disruptions carried out in RemoteClusters, too; child: carry out a parent's, without crons, rollouts "+
		"and "+
		"notifications")
	f.BoolVar(&o.Remote.WithoutLocal, "without-local", false, "with --mode=parent, carry out no disruptions here")
	f.BoolVar(&o.Remote.WithoutAuthorization, "without-remote-authorization", false,
		"with --mode=parent, do not ask the other cluster whether the user may create a disruption there")
	f.StringVar(&o.Remote.Webhook, "webhook", "", "with --mode=parent, address of the webhook that refuses objects "+
		"whose user may not create the disruption in the other cluster (default: none)")
	n := &o.Nets
	f.IntVar(&n.NamespaceShare, "max-namespace-share", n.NamespaceShare,
		"largest share in percent of a namespace's pods that disruptions may hit; 0: no limit")
	f.IntVar(&n.ClusterShare, "max-cluster-share", n.ClusterShare,
		"largest share in percent of the cluster's pods or nodes that disruptions may hit; 0: no limit")
	f.BoolVar(&n.NetworkWithoutHosts, "allow-network-without-hosts", false,
		"accept network disruptions of all traffic")
	f.BoolVar(&n.Nodes, "allow-nodes", false, "accept disruptions of nodes: the level node, and nodeFailure")
	f.BoolVar(&n.DiskRoot, "allow-disk-root", false, "accept disk disruptions of a root directory")
	f.StringSliceVar(&n.ProtectedNamespaces, "protected-namespaces", n.ProtectedNamespaces,
		"namespaces without targets")
	f.DurationVar(&n.MaxDuration, "max-duration", n.MaxDuration, "longest duration; 0: no limit")
	f.BoolVar(&n.DeleteOnly, "delete-only", false, "accept no new disruptions")
	return cmd
}
