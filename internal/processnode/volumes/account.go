package volumes

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

// ServiceAccountMount is where programs look for their service account.
const ServiceAccountMount = "/var/run/secrets/kubernetes.io/serviceaccount"

// tokenSeconds is what the API server's admission asks for in the volume it adds.
const tokenSeconds = 3607

// account is a pod's access to the API server, by its service account.
type account struct{ pod *Pod }

func (a account) dir() string { return filepath.Join(a.pod.Dir, "serviceaccount") }

// kubeconfig is the path of a kubeconfig file for the pod's service account.
func (a account) kubeconfig() string { return filepath.Join(a.pod.Dir, "kubeconfig") }

// used reports whether a container mounts the token; admission adds this mount unless it is disabled.
func (a account) used() bool {
	return slices.ContainsFunc(a.pod.Spec.Volumes, func(v corev1.Volume) bool { return a.is(v.Name) })
}

// is reports whether a volume is the one that admission adds.
func (a account) is(volume string) bool {
	for _, c := range slices.Concat(a.pod.Spec.InitContainers, a.pod.Spec.Containers) {
		for _, m := range c.VolumeMounts {
			if m.Name == volume && filepath.Clean(m.MountPath) == ServiceAccountMount {
				return true
			}
		}
	}
	return false
}

// write writes token, CA and namespace, and a kubeconfig that refers to them.
func (a account) write(ctx context.Context, apiServer string) error {
	if !a.used() {
		return nil
	}
	if _, err := a.writeToken(ctx); err != nil {
		return err
	}
	dir := a.dir()
	if err := writeFile(dir, "ca.crt", a.pod.CA, nil); err != nil {
		return err
	}
	if err := writeFile(dir, "namespace", []byte(a.pod.Namespace), nil); err != nil {
		return err
	}
	config := clientcmdapi.NewConfig()
	config.Clusters["cluster"] = &clientcmdapi.Cluster{
		Server: "https://" + apiServer, CertificateAuthority: filepath.Join(dir, "ca.crt"),
	}
	config.AuthInfos["pod"] = &clientcmdapi.AuthInfo{TokenFile: filepath.Join(dir, "token")}
	config.Contexts["pod"] = &clientcmdapi.Context{Cluster: "cluster", AuthInfo: "pod", Namespace: a.pod.Namespace}
	config.CurrentContext = "pod"
	return clientcmd.WriteToFile(*config, a.kubeconfig())
}

func (a account) writeToken(ctx context.Context) (expires time.Time, err error) {
	token, expires, err := a.request(ctx, "")
	if err != nil {
		return time.Time{}, err
	}
	return expires, writeFile(a.dir(), "token", []byte(token), nil)
}

// request requests a token that is bound to the pod.
func (a account) request(ctx context.Context, audience string) (token string, expires time.Time, err error) {
	seconds := int64(tokenSeconds)
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		ExpirationSeconds: &seconds,
		BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: a.pod.Name,
			UID: a.pod.UID},
	}}
	if a.pod.Unregistered {
		request.Spec.BoundObjectRef = nil
	}
	if audience != "" {
		request.Spec.Audiences = []string{audience}
	}
	name := a.pod.Spec.ServiceAccountName
	if name == "" {
		name = "default"
	}
	answer, err := a.pod.Client.CoreV1().ServiceAccounts(a.pod.Namespace).CreateToken(ctx, name, request,
		metav1.CreateOptions{})
	if err != nil {
		return "", time.Time{}, err
	}
	return answer.Status.Token, answer.Status.ExpirationTimestamp.Time, nil
}

// tokenRetry is the time until a token is requested again after a failure.
const tokenRetry = 10 * time.Second

// renew writes a new token after four fifths of the old one's lifetime.
func (a account) renew(ctx context.Context) {
	if !a.used() {
		return
	}
	wait := tokenSeconds * time.Second * 4 / 5
	for {
		if clock.Sleep(clock.Due(ctx), wait) != nil {
			return
		}
		expires, err := a.writeToken(ctx)
		wait = max(clock.Until(ctx, expires)*4/5, tokenRetry)
		if err != nil {
			a.pod.Logger.Warn("renew token", "namespace", a.pod.Namespace, "pod", a.pod.Name, "error", err)
			wait = tokenRetry
		}
	}
}
