package controllers

import (
	"flag"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

// restConfig is the configuration of a client: that of the kubeconfig file, or the pod's own if there is none.
func restConfig(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		return clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	to, err := rest.InClusterConfig()
	if err != nil {
		return nil, fmt.Errorf("%w (outside of a cluster, use --kubeconfig)", err)
	}
	return to, nil
}

// logger is a logger that writes to stderr; controller-runtime uses it too.
func logger() logr.Logger {
	klog.ClearLogger() // a command of which this is a part may have set another
	fs := flag.NewFlagSet("klog", flag.ContinueOnError)
	klog.InitFlags(fs)
	_ = fs.Set("logtostderr", "true")
	l := klog.Background()
	ctrl.SetLogger(l)
	return l
}
