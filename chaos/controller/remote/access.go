package remote

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	chaos "github.com/trommel-dev/trommel/chaos/api/v1alpha1"
	"github.com/trommel-dev/trommel/chaos/controller"
)

// The ConfigMap in the controllers' namespace that says what users are called in other clusters, and its key.
const (
	UserMap    = "disruption-user-map"
	UserMapKey = "userMap"
)

// mapping says what a user is called in other clusters.
type mapping struct {
	OriginalName string `json:"originalName"`
	// Cluster is the name of a RemoteCluster, in which * and ? stand for others.
	Cluster string `json:"cluster"`
	Name    string `json:"name"`
}

// systemPrefix begins the names that each cluster gives by itself: they say nothing in another one.
const systemPrefix = "system:"

// parseUserMap reads the text of the ConfigMap.
func parseUserMap(text string) ([]mapping, error) {
	var all []mapping
	if err := yaml.UnmarshalStrict([]byte(text), &all); err != nil {
		return nil, err
	}
	var errs []error
	for i, m := range all {
		wrong := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("entry %d: %s", i+1, fmt.Sprintf(format, args...)))
		}
		for _, field := range []struct{ name, value string }{
			{"originalName", m.OriginalName}, {"cluster", m.Cluster}, {"name", m.Name},
		} {
			if field.value == "" {
				wrong("%s is required", field.name)
			}
			if strings.HasPrefix(field.value, systemPrefix) {
				wrong("%s: %q begins with %s: such names are never mapped", field.name, field.value, systemPrefix)
			}
		}
		if _, err := path.Match(m.Cluster, ""); err != nil {
			wrong("cluster: %q: %v", m.Cluster, err)
		}
	}
	return all, errors.Join(errs...)
}

// identity is a user as a cluster knows him.
type identity struct {
	name   string
	groups []string
}

// identityOf is the user who has created an object, or last changed its spec.
func identityOf(o client.Object) (identity, error) {
	a := o.GetAnnotations()
	if a[chaos.AnnotationUser] == "" {
		return identity{}, fmt.Errorf("nobody has written down who created it (annotation %s): the admission policy "+
			"remote.chaos.trommel.dev is missing", chaos.AnnotationUser)
	}
	who := identity{name: a[chaos.AnnotationUser]}
	for _, group := range strings.Split(a[chaos.AnnotationGroups], "\n") {
		if group != "" {
			who.groups = append(who.groups, group)
		}
	}
	return who, nil
}

// in is what a user of this cluster is called in another one. Groups of a user who has another name there are others,
// too. Of the groups whose names begin with system:, only that of all users is one there.
func (who identity) in(cluster string, names []mapping) (identity, error) {
	if strings.HasPrefix(who.name, systemPrefix) {
		return who, fmt.Errorf("user %s: names that begin with %s are those of one cluster: they say nothing in "+
			"cluster %s, and are never mapped", who.name, systemPrefix, cluster)
	}
	there := identity{name: who.name}
	for _, m := range names {
		if matches, _ := path.Match(m.Cluster, cluster); matches && m.OriginalName == who.name {
			there.name = m.Name
			break
		}
	}
	if there.name == who.name {
		there.groups = slices.DeleteFunc(slices.Clone(who.groups), func(g string) bool {
			return strings.HasPrefix(g, systemPrefix)
		})
	}
	there.groups = append(there.groups, "system:authenticated")
	return there, nil
}

// right is one that a user needs in the cluster of the child, with words for it.
type right struct {
	attributes authorizationv1.ResourceAttributes
	words      string
}

// rights are those that the API server would ask for if the user created the child there himself; compare
// chaos/config/admission/authorization.yaml.
func rights(spec *chaos.DisruptionSpec) []right {
	namespace := spec.RemoteCluster.Namespace
	all := []right{{
		authorizationv1.ResourceAttributes{
			Verb: "create", Group: chaos.GroupVersion.Group, Version: chaos.GroupVersion.Version,
			Resource: "disruptions", Namespace: namespace,
		}, "create disruptions in namespace " + namespace,
	}}
	nodes := func(verbs ...string) {
		for _, verb := range verbs {
			all = append(all, right{authorizationv1.ResourceAttributes{Verb: verb, Resource: "nodes"}, verb + " nodes"})
		}
	}
	if spec.Level == chaos.LevelNode || spec.NodeFailure != nil || spec.PodReplacement != nil {
		nodes("patch")
	}
	if spec.NodeFailure != nil && spec.NodeFailure.Mode == "gone" {
		nodes("delete", "create")
	}
	deletes := func(resource string) {
		all = append(all, right{
			authorizationv1.ResourceAttributes{Verb: "delete", Resource: resource, Namespace: namespace},
			"delete " + resource + " in namespace " + namespace,
		})
	}
	if spec.PodReplacement != nil {
		deletes("pods")
		if spec.PodReplacement.DeleteClaims {
			deletes("persistentvolumeclaims")
		}
	}
	return all
}

// authorize asks the other cluster whether the user may create the child there; refused says why not.
func (r *disruptionReconciler) authorize(
	ctx context.Context, c *connection, d *chaos.Disruption,
) (refused string, err error) {
	if r.env.Config.Remote.WithoutAuthorization {
		return "", nil
	}
	who, err := identityOf(d)
	if err != nil {
		return err.Error(), nil
	}
	all := []identity{who}
	if owner := metav1.GetControllerOf(d); owner != nil {
		// Controllers that do not run with their own account are not known to the policy, which takes them for the
		// user. A disruption that claims to belong to another user's gives its author no further rights.
		user, words, err := r.ownerOf(ctx, d, owner)
		if err != nil || words != "" {
			return words, err
		}
		if user.name != who.name || !slices.Equal(user.groups, who.groups) {
			all = append(all, user)
		}
	}
	names, words, err := userMap(ctx, r.env)
	if err != nil || words != "" {
		return words, err
	}
	for _, who := range all {
		if words, err := who.mayCreate(ctx, &d.Spec, c.target.name, c.client, names); err != nil || words != "" {
			return words, err
		}
	}
	return "", nil
}

// mayCreate asks a cluster whether a user of this one may create a disruption there; refused says why not.
func (who identity) mayCreate(
	ctx context.Context, spec *chaos.DisruptionSpec, cluster string, to client.Writer, names []mapping,
) (refused string, err error) {
	there, err := who.in(cluster, names)
	if err != nil {
		return err.Error(), nil
	}
	called := who.name
	if there.name != who.name {
		called += " (there " + there.name + ")"
	}
	for _, right := range rights(spec) {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
			User: there.name, Groups: there.groups, ResourceAttributes: &right.attributes,
		}}
		if err := to.Create(ctx, review); apierrors.IsForbidden(err) {
			return fmt.Sprintf("cluster %s does not say what users may: %v", cluster, err), nil
		} else if err != nil {
			return "", err
		}
		if !review.Status.Allowed {
			words := fmt.Sprintf("user %s must not %s of cluster %s", called, right.words, cluster)
			if reason := review.Status.Reason; reason != "" {
				words += ": " + reason
			}
			return words, nil
		}
	}
	return "", nil
}

// ownerOf is the user of the DisruptionCron or DisruptionRollout that has created a disruption.
func (r *disruptionReconciler) ownerOf(
	ctx context.Context, d *chaos.Disruption, owner *metav1.OwnerReference,
) (who identity, refused string, err error) {
	var o client.Object
	switch owner.Kind {
	case "DisruptionCron":
		o = &chaos.DisruptionCron{}
	case "DisruptionRollout":
		o = &chaos.DisruptionRollout{}
	default:
		return identity{}, fmt.Sprintf("it belongs to a %s, whose user is not known", owner.Kind), nil
	}
	err = r.env.Reader.Get(ctx, client.ObjectKey{Namespace: d.Namespace, Name: owner.Name}, o)
	switch {
	case apierrors.IsNotFound(err) || err == nil && o.GetUID() != owner.UID:
		return identity{}, fmt.Sprintf("%s %s, to which it belongs, has gone", owner.Kind, owner.Name), nil
	case err != nil:
		return identity{}, "", err
	}
	if who, err = identityOf(o); err != nil {
		return identity{}, fmt.Sprintf("%s %s: %v", owner.Kind, owner.Name, err), nil
	}
	return who, "", nil
}

// userMap reads the ConfigMap; without one, users have the same names everywhere.
func userMap(ctx context.Context, env *controller.Env) (all []mapping, refused string, err error) {
	config := &corev1.ConfigMap{}
	err = env.Reader.Get(ctx, client.ObjectKey{Namespace: env.Config.Namespace, Name: UserMap}, config)
	if err != nil {
		return nil, "", client.IgnoreNotFound(err)
	}
	if all, err = parseUserMap(config.Data[UserMapKey]); err != nil {
		return nil, fmt.Sprintf("ConfigMap %s/%s: %s: %s", config.Namespace, config.Name, UserMapKey,
			strings.ReplaceAll(err.Error(), "\n", "; ")), nil
	}
	return all, "", nil
}
