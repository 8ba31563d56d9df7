package controllers

import (
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
)

// Command completes a command that makes a manager and runs it until SIGINT or SIGTERM. It adds the flags that all such
// commands have; they set o.
func Command(
	cmd *cobra.Command, o *Options, newManager func(*rest.Config, logr.Logger) (ctrl.Manager, error),
) *cobra.Command {
	var kubeconfig string
	cmd.Args, cmd.SilenceUsage = cobra.NoArgs, true
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
		defer stop()
		to, err := restConfig(kubeconfig)
		if err != nil {
			return err
		}
		mgr, err := newManager(to, logger())
		if err != nil {
			return err
		}
		return mgr.Start(ctx)
	}
	f := cmd.Flags()
	f.StringVar(&kubeconfig, "kubeconfig", "", "kubeconfig file (default: the pod's service account)")
	f.StringVar(&o.Metrics, "metrics", "", "address for Prometheus metrics (default: none)")
	f.StringVar(&o.Probes, "probes", "", "address for health probes (default: none)")
	f.BoolVar(&o.LeaderElection, "leader-elect", false, "let only one of several replicas work")
	return cmd
}
