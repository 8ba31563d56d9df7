package existing

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/util/homedir"

	"github.com/trommel-dev/trommel/internal/cluster"
)

// access is how a user reaches a cluster.
type access struct {
	file    string // the kubeconfig; empty: what kubectl takes
	context string
	config  *rest.Config
}

// String names the cluster in messages.
func (a *access) String() string { return fmt.Sprintf("context %q (%s)", a.context, a.config.Host) }

// productive are the words by which people name clusters that are not for tests.
var productive = []string{"prod", "production", "live", "prd"}

// choose reads the kubeconfig. It never takes its current context, and refuses one that looks like production unless it
// was named for this very run. Every error is a *cluster.Refusal.
func choose(config cluster.JoinConfig) (*access, error) {
	rules := clientcmd.NewDefaultClientConfigLoadingRules()
	rules.ExplicitPath = config.Kubeconfig
	where := config.Kubeconfig
	if where == "" {
		if where = os.Getenv(clientcmd.RecommendedConfigPathEnvVar); where == "" {
			where = homedir.HomeDir() + "/.kube/config"
		}
	}
	all, err := rules.Load()
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, refuse("there is no kubeconfig %s", where)
	case err != nil:
		return nil, refuse("the kubeconfig %s is invalid: %v", where, err)
	}
	names := slices.Sorted(maps.Keys(all.Contexts))
	has := "it has: " + strings.Join(names, ", ")
	if len(names) == 0 {
		has = "it has none"
	}
	if config.Context == "" {
		return nil, refuse("an existing cluster needs the name of a context, with context: in the suite or with "+
			"--context; the kubeconfig's current one is never taken (%s: %s)", where, has)
	}
	named := all.Contexts[config.Context]
	if named == nil {
		return nil, refuse("the kubeconfig %s has no context %q (%s)", where, config.Context, has)
	}
	target, err := clientcmd.NewNonInteractiveClientConfig(*all, config.Context, nil, rules).ClientConfig()
	if err != nil {
		return nil, refuse("context %q of the kubeconfig %s is invalid: %v", config.Context, where, err)
	}
	if !config.Confirmed {
		for what, name := range map[string]string{
			"context": config.Context, "cluster": named.Cluster, "server": hostOf(target.Host),
		} {
			if word := productiveWord(name); word != "" {
				return nil,
					refuse("the %s %q looks like production (%s); name the context on the command line if it is "+
						"really meant: --context %s", what, name, word, config.Context)
			}
		}
	}
	target.QPS, target.UserAgent, target.WarningHandler = -1, "trommel", rest.NoWarnings{}
	file := config.Kubeconfig
	if file != "" {
		// The journal names it for processes with other working directories.
		if file, err = filepath.Abs(file); err != nil {
			return nil, refuse("find the kubeconfig: %v", err)
		}
	}
	return &access{file: file, context: config.Context, config: target}, nil
}

// productiveWord returns the word by which a name looks like production; empty: it does not.
func productiveWord(name string) string {
	for _, word := range strings.FieldsFunc(strings.ToLower(name), func(r rune) bool {
		return (r < 'a' || r > 'z') && (r < '0' || r > '9')
	}) {
		if word = strings.TrimRight(word, "0123456789"); slices.Contains(productive, word) {
			return word
		}
	}
	return ""
}

func hostOf(server string) string {
	if u, err := url.Parse(server); err == nil && u.Host != "" {
		return u.Hostname()
	}
	return server
}

// right is something that the user must be allowed to do.
type right struct{ namespace, verb, group, resource, subresource string }

func (r right) String() string {
	what := r.resource
	if r.group != "" {
		what += "." + r.group
	}
	if r.subresource != "" {
		what += "/" + r.subresource
	}
	text := r.verb + " " + what
	if r.namespace != "" {
		text += " in namespace " + r.namespace
	}
	return text
}

// everyRun lists what every run needs.
func (c *Cluster) everyRun(ctx context.Context) (all []right) {
	for _, ns := range c.namespaces {
		if _, err := c.admin.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{}); apierrors.IsNotFound(err) {
			all = append(all, right{"", "create", "", "namespaces", ""}, right{"", "delete", "", "namespaces", ""})
		}
		for _, verb := range []string{"get", "create", "update", "delete"} {
			all = append(all, right{ns, verb, "coordination.k8s.io", "leases", ""})
		}
		all = append(all,
			right{ns, "create", "", "serviceaccounts", "token"},
			right{ns, "list", "", "pods", ""},
			right{ns, "list", "apps", "deployments", ""}, right{ns, "patch", "apps", "deployments", ""})
	}
	return all
}

// may asks whether the user may do all this; the error names what is missing.
func (c *Cluster) may(ctx context.Context, all []right) error {
	var missing []string
	for _, r := range all {
		answer, err := c.admin.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx,
			&authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
				ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: r.namespace, Verb: r.verb, Group: r.group, Resource: r.resource,
					Subresource: r.subresource,
				},
			}}, metav1.CreateOptions{})
		if apierrors.IsUnauthorized(err) {
			return refuse("the API server of %s does not accept the credentials of the kubeconfig: %v", c.access, err)
		}
		if err != nil {
			return fmt.Errorf("ask %s what this user may do: %w", c.access, err)
		}
		if text := r.String(); !answer.Status.Allowed && !slices.Contains(missing, text) {
			missing = append(missing, text)
		}
	}
	if missing == nil {
		return nil
	}
	return refuse("the user of %s may not do what a run needs: %s", c.access, strings.Join(missing, "; "))
}
