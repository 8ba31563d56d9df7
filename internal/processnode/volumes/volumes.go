// Package volumes writes the content of a pod's volumes, and the files of its service account, to local directories. It
// keeps them up to date as a kubelet does, and says where a container's paths are on this machine.
package volumes

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/trommel-dev/trommel/internal/atomicfile"
	"github.com/trommel-dev/trommel/internal/clock"
)

// Pod says whose volumes they are.
type Pod struct {
	Client    kubernetes.Interface
	Logger    *slog.Logger
	UID       types.UID
	Namespace string
	Name      string
	Spec      *corev1.PodSpec // read only
	// Unregistered says that the pod is not an object, so that tokens are not bound to it.
	Unregistered bool
	// CA is the PEM certificate with which the pod verifies API servers.
	CA []byte
	// Dir is the directory for the pod's files, Claims for those of claims, which outlive their pods.
	Dir, Claims string
	// Field resolves a field path of the downward API.
	Field func(path string) (string, error)
}

// Volumes are a pod's volumes, and its service account.
type Volumes struct {
	pod      Pod
	objects  Objects
	account  account
	outdated chan struct{}           // contains a token when an object of which they have content has changed
	tokens   map[string]*volumeToken // by audience
}

// New returns the volumes of a pod, of which nothing is written yet.
func New(pod Pod) *Volumes {
	v := &Volumes{
		pod: pod, objects: Objects{pod.Client, pod.Namespace}, outdated: make(chan struct{}, 1),
		tokens: map[string]*volumeToken{},
	}
	v.account.pod = &v.pod
	return v
}

// Account returns the directory with the files of the pod's service account and the path of a kubeconfig file for the
// same access. Ok is false if no container mounts them.
func (v *Volumes) Account() (dir, kubeconfig string, ok bool) {
	return v.account.dir(), v.account.kubeconfig(), v.account.used()
}

// volumeToken is a token of the pod's service account for another audience.
type volumeToken struct {
	text  string
	renew time.Time
}

// Write writes the files of the service account, by which the pod connects to an API server at that address, and every
// volume. It returns the volumes' local directories by name.
func (v *Volumes) Write(ctx context.Context, apiServer string) (map[string]string, error) {
	if err := v.account.write(ctx, apiServer); err != nil {
		return nil, fmt.Errorf("service account: %w", err)
	}
	folders := map[string]string{}
	for i := range v.pod.Spec.Volumes {
		volume := &v.pod.Spec.Volumes[i]
		if v.account.is(volume.Name) {
			folders[volume.Name] = v.account.dir()
			continue
		}
		folder, err := v.write(ctx, volume)
		if err != nil {
			return nil, fmt.Errorf("volume %q: %w", volume.Name, err)
		}
		folders[volume.Name] = folder
	}
	return folders, nil
}

// Follow keeps the token of the service account valid and rewrites volumes when an object that they come from changes,
// until ctx ends.
func (v *Volumes) Follow(ctx context.Context) {
	var tasks sync.WaitGroup
	tasks.Go(func() { v.account.renew(ctx) })
	v.followObjects(ctx)
	tasks.Wait()
}

func (v *Volumes) write(ctx context.Context, volume *corev1.Volume) (string, error) {
	folder := filepath.Join(v.pod.Dir, "volumes", volume.Name)
	switch {
	case volume.HostPath != nil:
		return volume.HostPath.Path, nil
	case volume.PersistentVolumeClaim != nil:
		folder = v.claimDir(volume.PersistentVolumeClaim.ClaimName)
	case volume.Ephemeral != nil:
		folder = v.claimDir(v.pod.Name + "-" + volume.Name)
	}
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return "", err
	}
	if volume.EmptyDir != nil || volume.PersistentVolumeClaim != nil || volume.Ephemeral != nil {
		return folder, nil
	}
	files, err := v.content(ctx, volume)
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
func (v *Volumes) claimDir(claim string) string {
	return filepath.Join(v.pod.Claims, v.pod.Namespace, claim)
}

// file is a file of a volume.
type file struct {
	content []byte
	mode    os.FileMode
}

// content returns what a volume must contain, by the files' paths in it.
func (v *Volumes) content(ctx context.Context, volume *corev1.Volume) (map[string]file, error) {
	into := map[string]file{}
	switch {
	case volume.ConfigMap != nil:
		s := volume.ConfigMap
		return into, v.addConfigMap(ctx, into, s.Name, s.Items, s.Optional, s.DefaultMode)
	case volume.Secret != nil:
		s := volume.Secret
		return into, v.addSecret(ctx, into, s.SecretName, s.Items, s.Optional, s.DefaultMode)
	case volume.DownwardAPI != nil:
		return into, v.addDownwardAPI(into, volume.DownwardAPI.Items, volume.DownwardAPI.DefaultMode)
	case volume.Projected != nil:
		s := volume.Projected
		for i := range s.Sources {
			if err := v.addProjection(ctx, into, &s.Sources[i], s.DefaultMode); err != nil {
				return nil, err
			}
		}
		return into, nil
	}
	return nil, fmt.Errorf("volumes of this type are not supported on the process node")
}

func (v *Volumes) addProjection(ctx context.Context, into map[string]file, s *corev1.VolumeProjection,
	mode *int32) error {
	switch {
	case s.ConfigMap != nil:
		return v.addConfigMap(ctx, into, s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional, mode)
	case s.Secret != nil:
		return v.addSecret(ctx, into, s.Secret.Name, s.Secret.Items, s.Secret.Optional, mode)
	case s.DownwardAPI != nil:
		return v.addDownwardAPI(into, s.DownwardAPI.Items, mode)
	case s.ServiceAccountToken != nil:
		token, err := v.volumeToken(ctx, s.ServiceAccountToken.Audience)
		if err != nil {
			return err
		}
		return add(into, s.ServiceAccountToken.Path, []byte(token), mode)
	}
	return fmt.Errorf("a projected source is of a type that is not supported on the process node")
}

// volumeToken returns a token with at least a fifth of its lifetime left. Only one goroutine at a time writes a pod's
// volumes.
func (v *Volumes) volumeToken(ctx context.Context, audience string) (string, error) {
	if t := v.tokens[audience]; t != nil && clock.Now(ctx).Before(t.renew) {
		return t.text, nil
	}
	text, expires, err := v.account.request(ctx, audience)
	if err != nil {
		return "", err
	}
	// The API server's clock is the cluster's, too.
	renew := clock.Now(ctx).Add(clock.Until(ctx, expires) * 4 / 5)
	v.tokens[audience] = &volumeToken{text: text, renew: renew}
	return text, nil
}

func (v *Volumes) addConfigMap(ctx context.Context, into map[string]file, name string, items []corev1.KeyToPath,
	optional *bool, mode *int32) error {
	cm, err := v.objects.ConfigMap(ctx, name, optional)
	if err != nil || cm == nil {
		return err
	}
	data := map[string][]byte{}
	for k, text := range cm.Data {
		data[k] = []byte(text)
	}
	maps.Copy(data, cm.BinaryData)
	return addItems(into, "config map "+name, data, items, isTrue(optional), mode)
}

func (v *Volumes) addSecret(ctx context.Context, into map[string]file, name string, items []corev1.KeyToPath,
	optional *bool, mode *int32) error {
	s, err := v.objects.Secret(ctx, name, optional)
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

func (v *Volumes) addDownwardAPI(into map[string]file, items []corev1.DownwardAPIVolumeFile, mode *int32) error {
	for _, item := range items {
		if item.FieldRef == nil {
			return fmt.Errorf("%s: resource fields in volumes are not supported on the process node", item.Path)
		}
		value, err := v.pod.Field(item.FieldRef.FieldPath)
		if err != nil {
			return err
		}
		if err := add(into, item.Path, []byte(value), mode); err != nil {
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

// Mounts resolves a container's mounts, the longest paths first. Folders are those of the volumes, and expand resolves
// the variables of a subPathExpr.
func (v *Volumes) Mounts(c *corev1.Container, folders map[string]string, expand func(string) string) ([]Mount, error) {
	var mounts []Mount
	for i, m := range c.VolumeMounts {
		folder, ok := folders[m.Name]
		if !ok {
			return nil, fmt.Errorf("mount %s: no volume %q", m.MountPath, m.Name)
		}
		sub := m.SubPath
		if m.SubPathExpr != "" {
			sub = expand(m.SubPathExpr)
		}
		if sub != "" {
			if !filepath.IsLocal(sub) {
				return nil, fmt.Errorf("mount %s: subPath %q leads out of the volume", m.MountPath, sub)
			}
			folder = filepath.Join(folder, sub)
			if v.followed(m.Name) {
				// As with a kubelet, a subPath mount is not updated.
				var err error
				if folder, err = Copy(folder,
					filepath.Join(v.pod.Dir, "subpaths", c.Name, strconv.Itoa(i))); err != nil {
					return nil, fmt.Errorf("mount %s: %w", m.MountPath, err)
				}
			}
			if _, err := os.Stat(folder); os.IsNotExist(err) {
				if err := os.MkdirAll(folder, 0o700); err != nil {
					return nil, err
				}
			}
		}
		mounts = append(mounts, Mount{filepath.Clean(m.MountPath), folder})
	}
	return SortMounts(mounts), nil
}

// followed reports whether the content of the volume comes from objects.
func (v *Volumes) followed(volume string) bool {
	return slices.ContainsFunc(v.pod.Spec.Volumes,
		func(o corev1.Volume) bool { return o.Name == volume && fromObjects(&o) })
}

// Copy copies a file or directory, if it exists, over what was there, and returns the copy's path.
func Copy(path, to string) (string, error) {
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
