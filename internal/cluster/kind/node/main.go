// Command node is what Kubernetes runs on a machine, in one executable: kubelet and kube-proxy, and kubeadm and kubectl,
// which kind calls. The name under which the executable is called says which one it is.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	_ "k8s.io/client-go/plugin/pkg/client/auth"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	kubectl "k8s.io/kubectl/pkg/cmd"
	kubectlutil "k8s.io/kubectl/pkg/cmd/util"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	kubeadm "k8s.io/kubernetes/cmd/kubeadm/app"
	kubeadmutil "k8s.io/kubernetes/cmd/kubeadm/app/util/errors"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"
)

// programs maps the name of a program to its main function, which reads os.Args as the program's own.
var programs = map[string]func(){
	"kubelet":    func() { os.Exit(cli.Run(kubelet.NewKubeletCommand(context.Background()))) },
	"kube-proxy": func() { os.Exit(cli.Run(proxy.NewProxyCommand())) },
	"kubeadm":    func() { kubeadmutil.HandleError(kubeadm.Run()) },
	"kubectl": func() {
		logs.GlogSetter(kubectl.GetLogVerbosity(os.Args)) //nolint:errcheck // as kubectl's own main
		if err := cli.RunNoErrOutput(kubectl.NewDefaultKubectlCommand()); err != nil {
			kubectlutil.CheckErr(err)
		}
	},
}

func main() {
	name := filepath.Base(os.Args[0])
	run, ok := programs[name]
	if !ok {
		fmt.Fprintf(os.Stderr, "%s: call me kubelet, kube-proxy, kubeadm or kubectl\n", name)
		os.Exit(2)
	}
	run()
}
