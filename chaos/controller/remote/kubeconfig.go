package remote

import (
	"errors"
	"fmt"
	"maps"
	"net/http"
	"slices"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// restConfig reads a kubeconfig that has all in it. What would run a program or read a file of the manager's machine is
// refused, whether the current context uses it or not.
func restConfig(text []byte) (*rest.Config, error) {
	config, err := clientcmd.Load(text)
	if err != nil {
		return nil, err
	}
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(config.AuthInfos)) {
		if err := selfContained(config.AuthInfos[name]); err != nil {
			errs = append(errs, fmt.Errorf("user %q: %w", name, err))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(config.Clusters)) {
		if config.Clusters[name].CertificateAuthority != "" {
			errs = append(errs, fmt.Errorf("cluster %q: certificate-authority is a file of another machine: use "+
				"certificate-authority-data", name))
		}
	}
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	to, err := clientcmd.NewNonInteractiveClientConfig(*config, "", &clientcmd.ConfigOverrides{}, nil).ClientConfig()
	if err != nil {
		return nil, err
	}
	to.QPS, to.Burst = 200, 400
	if to.Proxy == nil {
		// With it client-go does not keep the transport for ever, as it does with others.
		to.Proxy = http.ProxyFromEnvironment
	}
	return to, nil
}

func selfContained(user *clientcmdapi.AuthInfo) error {
	switch {
	case user.Exec != nil:
		return fmt.Errorf("exec would run %q where the controllers run: use a token or client-certificate-data",
			user.Exec.Command)
	case user.AuthProvider != nil:
		return fmt.Errorf("auth-provider %q is not supported: use a token or client-certificate-data",
			user.AuthProvider.Name)
	case user.ClientCertificate != "":
		return errors.New("client-certificate is a file of another machine: use client-certificate-data")
	case user.ClientKey != "":
		return errors.New("client-key is a file of another machine: use client-key-data")
	case user.TokenFile != "":
		return errors.New("tokenFile is a file of another machine: use token")
	}
	return nil
}
