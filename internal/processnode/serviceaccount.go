package processnode

import (
	"context"
	"path/filepath"
	"slices"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/trommel-dev/trommel/internal/clock"
)

const (
	serviceAccountMount = "/var/run/secrets/kubernetes.io/serviceaccount"
	tokenSeconds        = 3607 // what the API server's admission asks for in the volume it adds
)

// ServiceAccountMount is where programs look for their service account.
const ServiceAccountMount = serviceAccountMount

func (p *pod) serviceAccountDir() string { return filepath.Join(p.dir, "serviceaccount") }
func (p *pod) kubeconfigFile() string    { return filepath.Join(p.dir, "kubeconfig") }

// usesServiceAccount reports whether a container mounts the token; admission adds this mount unless it is disabled.
func (p *pod) usesServiceAccount() bool {
	return slices.ContainsFunc(p.spec.Volumes, func(v corev1.Volume) bool { return p.isServiceAccountVolume(v.Name) })
}

func (p *pod) isServiceAccountVolume(name string) bool {
	for _, c := range slices.Concat(p.init, p.containers) {
		for _, m := range c.spec.VolumeMounts {
			if m.Name == name && filepath.Clean(m.MountPath) == serviceAccountMount {
				return true
			}
		}
	}
	return false
}

// writeServiceAccount writes token, CA and namespace, and a kubeconfig that refers to them.
func (p *pod) writeServiceAccount(ctx context.Context) error {
	if !p.usesServiceAccount() {
		return nil
	}
	if _, err := p.writeToken(ctx); err != nil {
		return err
	}
	dir := p.serviceAccountDir()
	if err := writeFile(dir, "ca.crt", p.node.config.CA, nil); err != nil {
		return err
	}
	if err := writeFile(dir, "namespace", []byte(p.namespace), nil); err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["cluster"] = &clientcmdapi.Cluster{
		Server: "https://" + p.faults.APIServer(), CertificateAuthority: filepath.Join(dir, "ca.crt"),
	}
	config.AuthInfos["pod"] = &clientcmdapi.AuthInfo{TokenFile: filepath.Join(dir, "token")}
	config.Contexts["pod"] = &clientcmdapi.Context{Cluster: "cluster", AuthInfo: "pod", Namespace: p.namespace}
	config.CurrentContext = "pod"
	return clientcmd.WriteToFile(*config, p.kubeconfigFile())
}

func (p *pod) writeToken(ctx context.Context) (expires time.Time, err error) {
	token, expires, err := p.requestToken(ctx, "")
	if err != nil {
		return time.Time{}, err
	}
	return expires, writeFile(p.serviceAccountDir(), "token", []byte(token), nil)
}

// requestToken requests a token that is bound to the pod.
func (p *pod) requestToken(ctx context.Context, audience string) (token string, expires time.Time, err error) {
	seconds := int64(tokenSeconds)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: p.name,
			UID: p.uid},
	}}
	if p.node.config.Unregistered {
		request.Spec.BoundObjectRef = nil
	}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	name := p.spec.ServiceAccountName
	if name == "" {
		name = "default"
	}
	answer, err := p.node.client.CoreV1().ServiceAccounts(p.namespace).CreateToken(ctx, name, request,
		metav1.CreateOptions{})
	if err != nil {
		return "", time.Time{}, err
	}
	return answer.Status.Token, answer.Status.ExpirationTimestamp.Time, nil
}

// tokenRetry is the time until a token is requested again after a failure.
const tokenRetry = 10 * time.Second

// renewToken writes a new token after four fifths of the old one's lifetime.
func (p *pod) renewToken(ctx context.Context) {
	if !p.usesServiceAccount() {
		return
	}
	wait := tokenSeconds * time.Second * 4 / 5
	for {
		if clock.Sleep(clock.Due(ctx), wait) != nil {
			return
		}
		expires, err := p.writeToken(ctx)
		wait = max(clock.Until(ctx, expires)*4/5, tokenRetry)
		if err != nil {
			p.node.log.Warn("renew token", "namespace", p.namespace, "pod", p.name, "error", err)
			wait = tokenRetry
		}
	}
}
