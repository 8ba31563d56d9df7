package helm

import (
	"context"
	"io"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/restmapper"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// answer is how long an answer of another cluster may take.
const answer = 20 * time.Second

// getter is what Helm reaches a cluster with, for one action.
type getter struct {
	config    *rest.Config
	namespace string
	discovery discovery.CachedDiscoveryInterface
	mapper    meta.RESTMapper
}

var _ genericclioptions.RESTClientGetter = (*getter)(nil)

// newGetter makes one whose requests end with the context. Helm itself has no context for most of them.
func newGetter(ctx context.Context, to *rest.Config, namespace string) (*getter, error) {
	to = rest.CopyConfig(to)
	to.Wrap(func(base http.RoundTripper) http.RoundTripper { return &bound{ctx, base} })
	client, err := discovery.NewDiscoveryClientForConfig(to)
	if err != nil {
		return nil, err
	}
	cached := memory.NewMemCacheClient(client)
	return &getter{to, namespace, cached, restmapper.NewDeferredDiscoveryRESTMapper(cached)}, nil
}

// The methods are those of genericclioptions.RESTClientGetter.

func (g *getter) ToRESTConfig() (*rest.Config, error) { return rest.CopyConfig(g.config), nil }

func (g *getter) ToDiscoveryClient() (discovery.CachedDiscoveryInterface, error) {
	return g.discovery, nil
}

func (g *getter) ToRESTMapper() (meta.RESTMapper, error) { return g.mapper, nil }

// ToRawKubeConfigLoader has the namespace; nothing else is asked of it.
func (g *getter) ToRawKubeConfigLoader() clientcmd.ClientConfig {
	return clientcmd.NewDefaultClientConfig(clientcmdapi.Config{}, &clientcmd.ConfigOverrides{
		Context: clientcmdapi.Context{Namespace: g.namespace},
	})
}

// bound makes requests fail when a context ends, or the answer takes too long.
type bound struct {
	ctx  context.Context
	base http.RoundTripper
}

func (b *bound) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := b.ctx.Err(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(r.Context(), answer)
	stop := context.AfterFunc(b.ctx, cancel)
	end := func() { stop(); cancel() }
	resp, err := b.base.RoundTrip(r.WithContext(ctx))
	if err != nil {
		end()
		return nil, err
	}
	resp.Body = &body{resp.Body, end}
	return resp, nil
}

// body ends its request's context when it is closed.
type body struct {
	io.ReadCloser
	end func()
}

func (b *body) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}
