package processnode

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/cache"

	"github.com/trommel-dev/trommel/internal/atomicfile"
	"github.com/trommel-dev/trommel/internal/clock"
)

// mount maps a container's path to a path on this machine.
type mount struct{ path, local string }

// volumes is a pod's state for the volumes whose content comes from objects.
type volumes struct {
	outdated chan struct{} // contains a token when one of these objects has changed
	tokens   map[string]*volumeToken
}

// volumeToken is a token of the pod's service account for another audience.
type volumeToken struct {
	text  string
	renew time.Time
}

// writeVolumes writes every volume and returns the volumes' local directories by name.
func (p *pod) writeVolumes(ctx context.Context) (map[string]string, error) {
	folders := map[string]string{}
	for i := range p.spec.Volumes {
		v := &p.spec.Volumes[i]
		if p.isServiceAccountVolume(v.Name) {
			folders[v.Name] = p.serviceAccountDir()
			continue
		}
		folder, err := p.writeVolume(ctx, v)
		if err != nil {
			return nil, fmt.Errorf("volume %q: %w", v.Name, err)
		}
		folders[v.Name] = folder
	}
	return folders, nil
}

func (p *pod) writeVolume(ctx context.Context, v *corev1.Volume) (string, error) {
	folder := filepath.Join(p.dir, "volumes", v.Name)
	switch {
	case v.HostPath != nil:
		return v.HostPath.Path, nil
	case v.PersistentVolumeClaim != nil:
		folder = p.claimDir(v.PersistentVolumeClaim.ClaimName)
	case v.Ephemeral != nil:
		folder = p.claimDir(p.name + "-" + v.Name)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	if v.EmptyDir != nil || v.PersistentVolumeClaim != nil || v.Ephemeral != nil {
		return folder, nil
	}
	files, err := p.content(ctx, v)
	if err != nil {
		return "", err
	}
	return folder, replaceAll(folder, files)
}

// fromObjects reports whether a volume's content comes from objects and changes with them.
func fromObjects(v *corev1.Volume) bool {
	return v.ConfigMap != nil || v.Secret != nil || v.DownwardAPI != nil || v.Projected != nil
}

// claimDir is the directory of a claim, which outlives its pods.
func (p *pod) claimDir(claim string) string {
	return filepath.Join(p.node.config.Dir, "claims", p.namespace, claim)
}

// file is a file of a volume.
type file struct {
	content []byte
	mode    os.FileMode
}

// content returns what a volume must contain, by the files' paths in it.
func (p *pod) content(ctx context.Context, v *corev1.Volume) (map[string]file, error) {
	into := map[string]file{}
	switch {
	case v.ConfigMap != nil:
		s := v.ConfigMap
		return into, p.addConfigMap(ctx, into, s.Name, s.Items, s.Optional, s.DefaultMode)
	case v.Secret != nil:
		s := v.Secret
		return into, p.addSecret(ctx, into, s.SecretName, s.Items, s.Optional, s.DefaultMode)
	case v.DownwardAPI != nil:
		return into, p.addDownwardAPI(into, v.DownwardAPI.Items, v.DownwardAPI.DefaultMode)
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			if err := p.addProjection(ctx, into, &v.Projected.Sources[i], v.Projected.DefaultMode); err != nil {
				return nil, err
			}
		}
		return into, nil
	}
	return nil, fmt.Errorf("volumes of this type are not supported on the process node")
}

func (p *pod) addProjection(ctx context.Context, into map[string]file, s *corev1.VolumeProjection, mode *int32) error {
	switch {
	case s.ConfigMap != nil:
		return p.addConfigMap(ctx, into, s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional, mode)
	case s.Secret != nil:
		return p.addSecret(ctx, into, s.Secret.Name, s.Secret.Items, s.Secret.Optional, mode)
	case s.DownwardAPI != nil:
		return p.addDownwardAPI(into, s.DownwardAPI.Items, mode)
	case s.ServiceAccountToken != nil:
		token, err := p.volumeToken(ctx, s.ServiceAccountToken.Audience)
		if err != nil {
			return err
		}
		return add(into, s.ServiceAccountToken.Path, []byte(token), mode)
	}
	return fmt.Errorf("a projected source is of a type that is not supported on the process node")
}

// volumeToken returns a token with at least a fifth of its lifetime left. Only one goroutine at a time writes a pod's
// volumes.
func (p *pod) volumeToken(ctx context.Context, audience string) (string, error) {
	if t := p.volumes.tokens[audience]; t != nil && clock.Now(ctx).Before(t.renew) {
		return t.text, nil
	}
	text, expires, err := p.requestToken(ctx, audience)
	if err != nil {
		return "", err
	}
	// The API server's clock is the cluster's, too.
	renew := clock.Now(ctx).Add(clock.Until(ctx, expires) * 4 / 5)
	p.volumes.tokens[audience] = &volumeToken{text: text, renew: renew}
	return text, nil
}

func (p *pod) addConfigMap(ctx context.Context, into map[string]file, name string, items []corev1.KeyToPath,
	optional *bool, mode *int32) error {
	cm, err := p.configMap(ctx, name, optional)
	if err != nil || cm == nil {
		return err
	}
	data := map[string][]byte{}
	for k, v := range cm.Data {
		data[k] = []byte(v)
	}
	for k, v := range cm.BinaryData {
		data[k] = v
	}
	return addItems(into, "config map "+name, data, items, isTrue(optional), mode)
}

func (p *pod) addSecret(ctx context.Context, into map[string]file, name string, items []corev1.KeyToPath,
	optional *bool, mode *int32) error {
	s, err := p.secret(ctx, name, optional)
	if err != nil || s == nil {
		return err
	}
	return addItems(into, "secret "+name, s.Data, items, isTrue(optional), mode)
}

func addItems(into map[string]file, what string, data map[string][]byte, items []corev1.KeyToPath, optional bool,
	mode *int32) error {
	if len(items) == 0 {
		for k, v := range data {
			if err := add(into, k, v, mode); err != nil {
				return err
			}
		}
		return nil
	}
	for _, item := range items {
		v, ok := data[item.Key]
		switch {
		case !ok && optional:
			continue
		case !ok:
			return fmt.Errorf("%s has no key %q", what, item.Key)
		}
		m := mode
		if item.Mode != nil {
			m = item.Mode
		}
		if err := add(into, item.Path, v, m); err != nil {
			return err
		}
	}
	return nil
}

func (p *pod) addDownwardAPI(into map[string]file, items []corev1.DownwardAPIVolumeFile, mode *int32) error {
	for _, item := range items {
		if item.FieldRef == nil {
			return fmt.Errorf("%s: resource fields in volumes are not supported on the process node", item.Path)
		}
		v, err := p.field(item.FieldRef.FieldPath)
		if err != nil {
			return err
		}
		if err := add(into, item.Path, []byte(v), mode); err != nil {
			return err
		}
	}
	return nil
}

// add adds a file; the user can always read and write it.
func add(into map[string]file, name string, content []byte, mode *int32) error {
	name = filepath.Clean(name)
	if !filepath.IsLocal(name) || strings.HasPrefix(name, "..") {
		return fmt.Errorf("file %q leads out of the volume", name)
	}
	into[name] = file{content, permissions(mode)}
	return nil
}

func permissions(mode *int32) os.FileMode {
	if mode == nil {
		return 0o600
	}
	return os.FileMode(*mode)&0o700 | 0o600
}

// dataLink is the symbolic link in a volume's directory that leads to its current content, as with a kubelet: programs
// that watch a volume wait for it to be replaced.
const dataLink = "..data"

// replaceAll atomically makes the files the content of a volume's directory: it writes them to a new directory and then
// points ..data to it. If nothing differs, it writes nothing.
func replaceAll(folder string, files map[string]file) error {
	link := filepath.Join(folder, dataLink)
	old, err := os.Readlink(link)
	if err == nil {
		same, err := holds(filepath.Join(folder, old), files)
		if err != nil || same {
			return err
		}
	} else if !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	// Nothing reads this time; that of a file is the machine's, too.
	data, err := os.MkdirTemp(folder, time.Now().UTC().Format("..2006_01_02_15_04_05."))
	if err != nil {
		return err
	}
	for name, f := range files {
		path := filepath.Join(data, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, f.content, f.mode); err != nil {
			return err
		}
	}
	if err := os.Symlink(filepath.Base(data), link+"_tmp"); err != nil {
		return err
	}
	if err := os.Rename(link+"_tmp", link); err != nil {
		return err
	}
	// The visible files are links through ..data.
	seen := map[string]bool{}
	for name := range files {
		first, _, _ := strings.Cut(filepath.ToSlash(name), "/")
		seen[first] = true
		if err := os.Symlink(filepath.Join(dataLink, first), filepath.Join(folder, first)); err != nil &&
			!errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	entries, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), "..") && !seen[e.Name()] {
			if err := os.Remove(filepath.Join(folder, e.Name())); err != nil {
				return err
			}
		}
	}
	if old != "" {
		return os.RemoveAll(filepath.Join(folder, old))
	}
	return nil
}

// holds reports whether a directory contains exactly these files.
func holds(folder string, files map[string]file) (bool, error) {
	n, same := 0, true
	err := filepath.WalkDir(folder, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(folder, path)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		data, err := os.ReadFile(path)
		if f, ok := files[name]; ok && bytes.Equal(f.content, data) && f.mode == info.Mode().Perm() {
			n++
		} else {
			same = false
		}
		return err
	})
	return same && n == len(files), err
}

// changed causes the volumes that contain fields of the pod to be rewritten.
func (p *pod) changed() {
	select {
	case p.volumes.outdated <- struct{}{}:
	default:
	}
}

// followVolumes rewrites volumes when an object that they come from changes, until the pod must end.
func (p *pod) followVolumes(ctx context.Context) {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	following := false
	names := map[string]bool{}
	follow := func(resource, name string, o runtime.Object) {
		if following = true; names[resource+name] {
			return
		}
		names[resource+name] = true
		lister := cache.NewFilteredListWatchFromClient(p.node.client.CoreV1().RESTClient(), resource, p.namespace,
			func(o *metav1.ListOptions) {
				o.FieldSelector = fields.OneTermEqualSelector("metadata.name", name).String()
				watchOn(o)
			})
		_, informer := cache.NewInformerWithOptions(cache.InformerOptions{
			ListerWatcher: lister, ObjectType: o, Handler: cache.ResourceEventHandlerFuncs{
				AddFunc: func(any) { p.changed() }, UpdateFunc: func(any, any) { p.changed() },
				DeleteFunc: func(any) { p.changed() },
			},
		})
		tasks.Go(func() { informer.RunWithContext(ctx) })
	}
	source := func(configMap *corev1.LocalObjectReference, secret string) {
		switch {
		case configMap != nil:
			follow("configmaps", configMap.Name, &corev1.ConfigMap{})
		case secret != "":
			follow("secrets", secret, &corev1.Secret{})
		}
	}
	for i := range p.spec.Volumes {
		v := &p.spec.Volumes[i]
		switch {
		case p.isServiceAccountVolume(v.Name):
		case v.ConfigMap != nil:
			source(&v.ConfigMap.LocalObjectReference, "")
		case v.Secret != nil:
			source(nil, v.Secret.SecretName)
		case v.DownwardAPI != nil:
			following = true
		case v.Projected != nil:
			following = true
			for _, s := range v.Projected.Sources {
				if s.ConfigMap != nil {
					source(&s.ConfigMap.LocalObjectReference, "")
				}
				if s.Secret != nil {
					source(nil, s.Secret.Name)
				}
			}
		}
	}
	if !following {
		return
	}
	retry := clock.NewTimer(clock.Due(ctx), 0)
	defer retry.Stop()
	p.awaitTokens(ctx, retry)
	for {
		select {
		case <-p.volumes.outdated:
		case <-retry.C:
		case <-ctx.Done():
			return
		}
		failed := false
		for i := range p.spec.Volumes {
			v := &p.spec.Volumes[i]
			if !fromObjects(v) || p.isServiceAccountVolume(v.Name) {
				continue
			}
			// If a required object is deleted, the old content stays, as with a kubelet.
			if _, err := p.writeVolume(ctx, v); err != nil && ctx.Err() == nil {
				failed = true
				if !apierrors.IsNotFound(err) {
					p.node.log.Warn("update volume", "namespace", p.namespace, "pod", p.name, "volume", v.Name,
						"error", err)
				}
			}
		}
		if p.awaitTokens(ctx, retry); failed {
			retry.Reset(volumeRetry)
		}
	}
}

// volumeRetry is the time until volumes are written again after a failure.
const volumeRetry = time.Second

// awaitTokens sets a timer to when the first token in volumes must be renewed; without any it stops the timer.
func (p *pod) awaitTokens(ctx context.Context, timer *clock.Timer) {
	timer.Stop()
	var first time.Time
	for _, t := range p.volumes.tokens {
		if first.IsZero() || t.renew.Before(first) {
			first = t.renew
		}
	}
	if !first.IsZero() {
		timer.Reset(max(clock.Until(ctx, first), volumeRetry))
	}
}

// writeFile replaces a file atomically, so that a reader sees either the old or the new one. The user can always read
// and write it.
func writeFile(folder, name string, content []byte, mode *int32) error {
	perm := permissions(mode)
	if !filepath.IsLocal(name) {
		return fmt.Errorf("file %q leads out of the volume", name)
	}
	file := filepath.Join(folder, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	return atomicfile.Write(file, content, perm)
}

// findMounts resolves the container's mounts, the longest paths first.
func (c *container) findMounts(volumes map[string]string, env *environment) ([]mount, error) {
	var mounts []mount
	for i, m := range c.spec.VolumeMounts {
		folder, ok := volumes[m.Name]
		if !ok {
			return nil, fmt.Errorf("mount %s: no volume %q", m.MountPath, m.Name)
		}
		sub := m.SubPath
		if m.SubPathExpr != "" {
			sub = expand(m.SubPathExpr, env.lookup)
		}
		if sub != "" {
			if !filepath.IsLocal(sub) {
				return nil, fmt.Errorf("mount %s: subPath %q leads out of the volume", m.MountPath, sub)
			}
			folder = filepath.Join(folder, sub)
			if c.pod.followed(m.Name) {
				// As with a kubelet, a subPath mount is not updated.
				var err error
				if folder, err = copyOf(folder,
					filepath.Join(c.pod.dir, "subpaths", c.spec.Name, strconv.Itoa(i))); err != nil {
					return nil, fmt.Errorf("mount %s: %w", m.MountPath, err)
				}
			}
			if _, err := os.Stat(folder); os.IsNotExist(err) {
				if err := os.MkdirAll(folder, 0o700); err != nil {
					return nil, err
				}
			}
		}
		mounts = append(mounts, mount{path: filepath.Clean(m.MountPath), local: folder})
	}
	return sortMounts(mounts), nil
}

// sortMounts puts the longest paths first.
func sortMounts(mounts []mount) []mount {
	slices.SortFunc(mounts, func(a, b mount) int { return len(b.path) - len(a.path) })
	return mounts
}

// followed reports whether the content of the volume comes from objects.
func (p *pod) followed(volume string) bool {
	return slices.ContainsFunc(p.spec.Volumes,
		func(v corev1.Volume) bool { return v.Name == volume && fromObjects(&v) })
}

// copyOf copies a file or directory, if it exists, and returns the copy's path.
func copyOf(path, to string) (string, error) {
	path, err := filepath.EvalSymlinks(path)
	if errors.Is(err, fs.ErrNotExist) {
		return to, nil
	}
	if err != nil {
		return "", err
	}
	if err := os.RemoveAll(to); err != nil {
		return "", err
	}
	info, err := os.Stat(path)
	if err != nil {
		return "", err
	}
	if info.IsDir() {
		return to, os.CopyFS(to, os.DirFS(path))
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
		return "", err
	}
	content, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	return to, os.WriteFile(to, content, info.Mode().Perm())
}

// rewritePaths replaces mount paths that occur as whole paths or at the beginning of paths.
func rewritePaths(s string, mounts []mount) string {
	var b strings.Builder
scan:
	for i := 0; i < len(s); {
		if s[i] == '/' && (i == 0 || !isPathByte(s[i-1])) {
			for _, m := range mounts {
				rest, ok := strings.CutPrefix(s[i:], m.path)
				if ok && m.path != "" && (rest == "" || rest[0] == '/' || !isPathByte(rest[0])) {
					b.WriteString(m.local)
					i += len(m.path)
					continue scan
				}
			}
		}
		b.WriteByte(s[i])
		i++
	}
	return b.String()
}

func isPathByte(c byte) bool {
	return c == '/' || c == '.' || c == '-' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' ||
		'A' <= c && c <= 'Z'
}
