package existing

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/discovery"

	"github.com/trommel-dev/trommel/internal/cluster"
)

const (
	// graceful is how long the controllers under test have to finalize what the workload has made.
	graceful = 30 * time.Second
	// cleanTimeout bounds the whole reset.
	cleanTimeout = 3 * time.Minute
	pollInterval = 200 * time.Millisecond
	// wakeInterval is how often Kubernetes is made to look at a definition that it is to delete.
	wakeInterval = 5 * time.Second
	// annotationWoken is on a definition whose deletion takes long: when wake changed it.
	annotationWoken = "trommel.dev/woken"
)

// seen is an object of a namespace, or of the cluster.
type seen struct {
	object
	owners     []types.UID
	finalizers []string
	ending     bool
	ofSet      bool // it says that it is a pod of a StatefulSet
}

// inventory is what there is in the namespaces of a run.
type inventory struct {
	all        []*seen
	namespaces []string // those that there are
	unlisted   []string // what the user may not list, see unlistedKey
}

// listAll lists the objects in the namespaces, as far as the user may. Events are left out.
func (c *Cluster) listAll(ctx context.Context) (i inventory, err error) {
	lists, err := c.admin.Discovery().ServerPreferredNamespacedResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return i, fmt.Errorf("ask %s for its types: %w", c.access, err)
	}
	var types []schema.GroupVersionResource
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range l.APIResources {
			if slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "delete") && r.Name != "events" {
				types = append(types, gv.WithResource(r.Name))
			}
		}
	}
	var mu sync.Mutex
	group, listing := errgroup.WithContext(ctx)
	group.SetLimit(8)
	for _, ns := range c.namespaces {
		switch _, err := c.admin.CoreV1().Namespaces().Get(ctx, ns, metav1.GetOptions{}); {
		case apierrors.IsNotFound(err):
			continue
		case err != nil && !apierrors.IsForbidden(err):
			return i, err
		}
		i.namespaces = append(i.namespaces, ns)
		for _, gvr := range types {
			group.Go(func() error {
				list, err := c.meta.Resource(gvr).Namespace(ns).List(listing, metav1.ListOptions{})
				switch {
				case apierrors.IsForbidden(err):
					mu.Lock()
					defer mu.Unlock()
					i.unlisted = append(i.unlisted, unlistedKey(ns, gvr.Group, gvr.Resource))
					return nil
				case apierrors.IsNotFound(err) || apierrors.IsMethodNotSupported(err):
					return nil
				case err != nil:
					return fmt.Errorf("list %s in namespace %s: %w", gvr.Resource, ns, err)
				}
				mu.Lock()
				defer mu.Unlock()
				for n := range list.Items {
					i.all = append(i.all, seenOf(gvr, &list.Items[n]))
				}
				return nil
			})
		}
	}
	err = group.Wait()
	return i, err
}

func seenOf(gvr schema.GroupVersionResource, m *metav1.PartialObjectMetadata) *seen {
	s := &seen{
		object: object{Group: gvr.Group, Version: gvr.Version, Resource: gvr.Resource, Namespace: m.Namespace,
			Name: m.Name, UID: m.UID},
		finalizers: m.Finalizers, ending: m.DeletionTimestamp != nil,
		ofSet: m.Labels["statefulset.kubernetes.io/pod-name"] == m.Name,
	}
	for _, o := range m.OwnerReferences {
		s.owners = append(s.owners, o.UID)
	}
	return s
}

// TakeSnapshot records which objects there are in the run's namespaces.
func (c *Cluster) TakeSnapshot(ctx context.Context) (cluster.Snapshot, error) {
	there, err := c.listAll(ctx)
	if err != nil {
		return nil, fmt.Errorf("look what there is in the namespaces of the run: %w", err)
	}
	b := &snapshot{Taken: time.Now(), Namespaces: there.namespaces, Unlisted: there.unlisted}
	for _, s := range there.all {
		b.UIDs = append(b.UIDs, s.UID)
	}
	b.index()
	return b, nil
}

// WithCertificates returns the snapshot: it holds no content of objects.
func (c *Cluster) WithCertificates(_ context.Context, b cluster.Snapshot) (cluster.Snapshot, error) {
	return b, nil
}

// KeepSnapshot begins the journal of a run, before which nothing can be written.
func (c *Cluster) KeepSnapshot(b cluster.Snapshot) error {
	kept := b.(*snapshot)
	c.mu.Lock()
	c.snapshot = kept
	c.mu.Unlock()
	return c.journal.begin(begun{
		Context: c.access.context, Kubeconfig: c.access.file, Host: c.access.config.Host, Namespaces: c.namespaces,
		PID: os.Getpid(), Snapshot: kept,
	})
}

// KeptSnapshot reads the journal of a run that has ended without undoing what it did.
func (c *Cluster) KeptSnapshot() (cluster.Snapshot, error) {
	b, err := c.journal.read()
	if err != nil {
		return nil, err
	}
	return b.Snapshot, nil
}

// DropSnapshot deletes the journal.
func (c *Cluster) DropSnapshot() error { return c.journal.drop() }

// Reset deletes what the run has made, and what came of that, and puts back what it has replaced. The controllers under
// test have some time to finalize what the workload and the plan have made. An error says what stays behind.
func (c *Cluster) Reset(ctx context.Context, to cluster.Snapshot) error {
	base := to.(*snapshot)
	c.mu.Lock()
	c.snapshot = base
	c.mu.Unlock()
	// A run's end must not be cut short by the end of what has cut the run short.
	whole := context.WithoutCancel(ctx)
	cleaning, cancel := context.WithTimeoutCause(whole, cleanTimeout,
		fmt.Errorf("the cluster is not clean after %s", cleanTimeout))
	r := &reset{c: c, base: base, ours: map[types.UID]*object{}}
	err := r.clean(cleaning)
	cancel()
	// What was replaced is put back also if something else stays.
	ctx, cancel = context.WithTimeout(whole, graceful)
	defer cancel()
	stopErr := c.node.Stop(ctx, nil)
	for _, d := range c.journal.replaced() {
		err = errors.Join(err, c.putBack(ctx, d))
	}
	return errors.Join(err, stopErr, c.node.Reset(ctx))
}

// reset is the undoing of one run.
type reset struct {
	c    *Cluster
	base *snapshot
	ours map[types.UID]*object // the run's objects, also those that are gone
}

// numbered is the name of a pod of a StatefulSet, or of its claim: the template and the set, and a number.
var numbered = regexp.MustCompile(`^(.+)-[0-9]+$`)

// look lists the run's objects in its namespaces, and others that were not there before it.
func (r *reset) look(ctx context.Context) (ours, others []*seen, err error) {
	there, err := r.c.listAll(ctx)
	if err != nil {
		return nil, nil, err
	}
	all := slices.DeleteFunc(there.all, func(s *seen) bool { return r.base.has(s.UID) })
	made, _, intents := r.c.journal.made()
	claims, sets := map[string]bool{}, map[string]bool{}
	for _, o := range made {
		r.ours[o.UID] = o
		if o.Group == "apps" && o.Resource == "statefulsets" {
			sets[o.Namespace+"/"+o.Name] = true
		}
		for _, template := range o.Claims {
			claims[o.Namespace+"/"+template+"-"+o.Name] = true
		}
	}
	isNew := func(s *seen) bool {
		if r.ours[s.UID] != nil || slices.ContainsFunc(s.owners,
			func(uid types.UID) bool { return r.ours[uid] != nil }) {
			return true
		}
		// Claims have no owner, and who deletes a set may leave its pods without one.
		if m := numbered.FindStringSubmatch(s.Name); m != nil && s.Group == "" &&
			(s.Resource == "persistentvolumeclaims" && claims[s.Namespace+"/"+m[1]] ||
				s.Resource == "pods" && sets[s.Namespace+"/"+m[1]] && s.ofSet) {
			return true
		}
		if i := strings.LastIndexByte(s.Name, '-'); s.Group == "apps" && s.Resource == "controllerrevisions" && i > 0 &&
			sets[s.Namespace+"/"+s.Name[:i]] {
			return true
		}
		// The process was killed between the request and the record of its answer.
		return slices.ContainsFunc(intents, s.same) || !slices.Contains(r.base.Namespaces,
			s.Namespace) && r.madeNamespace(s)
	}
	for changed := true; changed; { // owners may come after what they own
		changed = false
		for _, s := range all {
			if r.ours[s.UID] == nil && isNew(s) {
				r.ours[s.UID], changed = &s.object, true
			}
		}
	}
	theirs := map[types.UID]bool{} // new ones that belong to what was there before
	for changed := true; changed; {
		changed = false
		for _, s := range all {
			if !theirs[s.UID] && slices.ContainsFunc(s.owners, func(uid types.UID) bool {
				return r.base.has(uid) || theirs[uid]
			}) {
				theirs[s.UID], changed = true, true
			}
		}
	}
	for _, s := range all {
		if r.ours[s.UID] != nil {
			ours = append(ours, s)
		} else if !byItself(s) && !theirs[s.UID] {
			others = append(others, s)
		}
	}
	return ours, others, nil
}

// madeNamespace reports whether the object is in a namespace that the run has made: so all in it are the run's.
func (r *reset) madeNamespace(s *seen) bool {
	for _, o := range r.ours {
		if o.Group == "" && o.Resource == "namespaces" && o.Name == s.Namespace {
			return true
		}
	}
	return false
}

// byItself reports whether Kubernetes deletes the object together with another, although it does not belong to it.
func byItself(s *seen) bool {
	switch {
	case s.Group == "" && s.Resource == "endpoints", s.Resource == "endpointslices":
		return true
	case s.Group == "coordination.k8s.io" && s.Name == leaseName:
		return true
	}
	return s.ending
}

// clean deletes the run's objects, and reports those that do not go.
func (r *reset) clean(ctx context.Context) error {
	ours, _, err := r.look(ctx)
	if err != nil {
		return err
	}
	made, early, _ := r.c.journal.made()
	isEarly := func(uid types.UID) bool {
		return slices.ContainsFunc(early, func(o *object) bool { return o.UID == uid })
	}
	// First what the workload and the plan have made, while the controllers run. The rest often goes with that.
	var first []*object
	for _, o := range slices.Backward(made) {
		if o.By == byTrommel && !isEarly(o.UID) {
			first = append(first, o)
		}
	}
	if len(r.c.node.Pods()) > 0 {
		gentle, cancel := context.WithTimeout(ctx, graceful)
		_ = r.delete(gentle, first, false) // what does not go by itself goes later
		cancel()
	}
	if err := r.c.node.Stop(ctx, nil); err != nil {
		return err
	}
	// Then the others, the newest first: definitions and rights are the oldest ones.
	var rest []*object
	for _, o := range slices.Backward(made) {
		if !isEarly(o.UID) {
			rest = append(rest, o)
		}
	}
	for _, s := range ours {
		if !slices.ContainsFunc(made, func(o *object) bool { return o.UID == s.UID }) {
			rest = append(rest, &s.object)
		}
	}
	if err := r.delete(ctx, rest, true); err != nil {
		return err
	}
	// Something may have come of objects since the first look.
	if err := cluster.Poll(ctx, pollInterval, func(ctx context.Context) error {
		ours, _, err := r.look(ctx)
		if err != nil {
			return err
		}
		ours = slices.DeleteFunc(ours, func(s *seen) bool { return isEarly(s.UID) || r.early(s, early) })
		if len(ours) == 0 {
			return nil
		}
		var still []*object
		for _, s := range ours {
			still = append(still, &s.object)
		}
		if err := r.delete(ctx, still, true); err != nil {
			return err
		}
		return errors.New("more may come of what is gone")
	}); err != nil {
		return err
	}
	last := slices.Clone(early)
	slices.Reverse(last)
	if err := r.delete(ctx, last, true); err != nil {
		return err
	}
	return r.others(ctx)
}

// early reports whether the object is one of a namespace that goes as a whole, or belongs to one of the manifests'.
func (r *reset) early(s *seen, early []*object) bool {
	return r.madeNamespace(s) || slices.ContainsFunc(early, func(o *object) bool {
		return slices.Contains(s.owners,
			o.UID)
	})
}

// others reports objects that were not there before the run, and that it has not made as far as is known.
func (r *reset) others(ctx context.Context) error {
	_, others, err := r.look(ctx)
	if err != nil || len(others) == 0 {
		return err
	}
	return fmt.Errorf("the namespaces of the run have objects that it has not made, and that were not there before: "+
		"%s; it leaves them alone", namesOf(others))
}

func namesOf[T fmt.Stringer](all []T) string {
	var names []string
	for _, o := range all {
		names = append(names, o.String())
	}
	slices.Sort(names)
	if more := len(names) - 10; more > 0 {
		names = append(names[:10], fmt.Sprintf("and %d more", more))
	}
	return strings.Join(names, ", ")
}

// delete deletes objects, in their order, and waits until they are gone. With force it takes away finalizers that have
// lost their controller, those of custom types.
func (r *reset) delete(ctx context.Context, all []*object, force bool) error {
	waiting := all
	forced := map[types.UID]bool{}
	began := time.Now()
	woken := began
	return cluster.Poll(ctx, pollInterval, func(ctx context.Context) error {
		var left []*object
		var why []string
		wake := time.Since(woken) > wakeInterval
		if wake {
			woken = time.Now()
		}
		for _, o := range waiting {
			s, err := r.deleteOne(ctx, o)
			if err != nil {
				return fmt.Errorf("delete %s: %w", o, err)
			}
			if s == nil {
				continue
			}
			left = append(left, o)
			text := o.String()
			if len(s.finalizers) > 0 {
				text += " (finalizers: " + strings.Join(s.finalizers, ", ") + ")"
			}
			why = append(why, text)
			if wake && s.ending && slices.Contains(s.finalizers, apiextensionsv1.CustomResourceCleanupFinalizer) {
				if err := r.wake(ctx, s); err != nil {
					return err
				}
			}
			if force && s.ending && !forced[o.UID] && time.Since(began) > 2*time.Second {
				if forced[o.UID], err = r.release(ctx, s); err != nil {
					return err
				}
			}
		}
		if waiting = left; len(left) == 0 {
			return nil
		}
		return fmt.Errorf("what the run has made stays behind: %s", strings.Join(why[:min(len(why), 10)], ", "))
	})
}

// deleteOne deletes an object if it is there and not being deleted; nil: it is gone. It deletes only the one that the
// run has made, not another of its name.
func (r *reset) deleteOne(ctx context.Context, o *object) (*seen, error) {
	m, err := r.c.front.get(ctx, o.gvr(), o.Namespace, o.Name)
	if apierrors.IsNotFound(err) || err == nil && m.UID != o.UID {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	s := seenOf(o.gvr(), m)
	if s.ending {
		return s, nil
	}
	if o.Resource == "customresourcedefinitions" {
		if err := r.mayUndefine(ctx, o); err != nil {
			return nil, err
		}
	}
	background := metav1.DeletePropagationBackground
	options := metav1.DeleteOptions{
		PropagationPolicy: &background, Preconditions: &metav1.Preconditions{UID: &o.UID},
	}
	if o.Namespace == "" {
		err = r.c.meta.Resource(o.gvr()).Delete(ctx, o.Name, options)
	} else {
		err = r.c.meta.Resource(o.gvr()).Namespace(o.Namespace).Delete(ctx, o.Name, options)
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return nil, err
	}
	return s, nil
}

// mayUndefine refuses to delete a definition while others have objects of its type: they would go with it.
func (r *reset) mayUndefine(ctx context.Context, o *object) error {
	resource, group, _ := strings.Cut(o.Name, ".")
	lists, err := r.c.admin.Discovery().ServerPreferredResources()
	if err != nil && !discovery.IsGroupDiscoveryFailedError(err) {
		return err
	}
	for _, l := range lists {
		gv, err := schema.ParseGroupVersion(l.GroupVersion)
		if err != nil || gv.Group != group {
			continue
		}
		list, err := r.c.meta.Resource(gv.WithResource(resource)).List(ctx, metav1.ListOptions{})
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("look whether others have objects of the type: %w", err)
		}
		for i := range list.Items {
			if s := seenOf(gv.WithResource(resource), &list.Items[i]); r.ours[s.UID] == nil {
				return fmt.Errorf("%s is not the run's, and would go with its definition", s)
			}
		}
	}
	return nil
}

// release takes custom finalizers from an object that the run has made: who would finalize it has been stopped.
func (r *reset) release(ctx context.Context, s *seen) (done bool, err error) {
	var keep, gone []string
	for _, f := range s.finalizers {
		domain, _, custom := strings.Cut(f, "/")
		if custom && domain != "kubernetes.io" && !strings.HasSuffix(domain, ".kubernetes.io") &&
			!strings.HasSuffix(domain, ".k8s.io") {
			gone = append(gone, f)
			continue
		}
		keep = append(keep, f)
	}
	if len(gone) == 0 {
		return false, nil
	}
	r.c.progress(fmt.Sprintf("taking the finalizer %s from %s: the controllers under test have not",
		strings.Join(gone, ", "), s))
	if keep == nil {
		keep = []string{}
	}
	err = r.patch(ctx, s, map[string]any{"finalizers": keep})
	return err == nil, err
}

// wake lets Kubernetes go on with the deletion of a definition. Its controller (apiextensions-apiserver,
// controller/finalizer/crd_finalizer.go, 1.36) cannot list the objects of a type before that API server's watch cache
// of them has started, and tries again 5 ms later. If its informer has not yet seen the condition that it wrote, it
// gets a conflict and leaves the definition to the next event; but it ignores events of that condition, so that
// nothing happens until the informer's resync 5 minutes later. A change of anything else is such an event. A user who
// may not change definitions has to wait.
func (r *reset) wake(ctx context.Context, s *seen) error {
	err := r.patch(ctx, s, map[string]any{
		"annotations": map[string]any{annotationWoken: time.Now().UTC().Format(time.RFC3339)},
	})
	if apierrors.IsForbidden(err) {
		return nil
	}
	return err
}

// patch changes the object's metadata. If the object is gone, or another one has its name, nothing happens.
func (r *reset) patch(ctx context.Context, s *seen, metadata map[string]any) error {
	metadata["uid"] = s.UID
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	_, err = r.c.meta.Resource(s.gvr()).Namespace(s.Namespace).Patch(ctx, s.Name, types.MergePatchType, patch,
		metav1.PatchOptions{FieldManager: manager})
	if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
		return nil
	}
	return err
}
