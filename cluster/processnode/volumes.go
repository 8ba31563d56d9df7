package processnode

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// mount says where a container's path really is.
type mount struct{ path, local string }

// writeVolumes makes the local folder of every volume and returns them by the volumes' names.
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
	switch {
	case v.EmptyDir != nil, v.PersistentVolumeClaim != nil, v.Ephemeral != nil:
		return folder, nil
	case v.ConfigMap != nil:
		s := v.ConfigMap
		return folder, p.writeConfigMap(ctx, folder, s.Name, s.Items, s.Optional, s.DefaultMode)
	case v.Secret != nil:
		s := v.Secret
		return folder, p.writeSecret(ctx, folder, s.SecretName, s.Items, s.Optional, s.DefaultMode)
	case v.DownwardAPI != nil:
		return folder, p.writeDownwardAPI(folder, v.DownwardAPI.Items, v.DownwardAPI.DefaultMode)
	case v.Projected != nil:
		for i := range v.Projected.Sources {
			if err := p.writeProjection(ctx, folder, &v.Projected.Sources[i], v.Projected.DefaultMode); err != nil {
				return "", err
			}
		}
		return folder, nil
	}
	return "", fmt.Errorf("its kind is not supported on the process node")
}

// claimDir is the folder of a claim, which outlives its pods.
func (p *pod) claimDir(claim string) string {
	return filepath.Join(p.node.config.Dir, "claims", p.namespace, claim)
}

func (p *pod) writeProjection(ctx context.Context, folder string, s *corev1.VolumeProjection, mode *int32) error {
	switch {
	case s.ConfigMap != nil:
		return p.writeConfigMap(ctx, folder, s.ConfigMap.Name, s.ConfigMap.Items, s.ConfigMap.Optional, mode)
	case s.Secret != nil:
		return p.writeSecret(ctx, folder, s.Secret.Name, s.Secret.Items, s.Secret.Optional, mode)
	case s.DownwardAPI != nil:
		return p.writeDownwardAPI(folder, s.DownwardAPI.Items, mode)
	case s.ServiceAccountToken != nil:
		token, _, err := p.requestToken(ctx, s.ServiceAccountToken.Audience)
		if err != nil {
			return err
		}
		return writeFile(folder, s.ServiceAccountToken.Path, []byte(token), mode)
	}
	return fmt.Errorf("a projected source is of a kind that is not supported on the process node")
}

func (p *pod) writeConfigMap(ctx context.Context, folder, name string, items []corev1.KeyToPath, optional *bool, mode *int32) error {
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
	return writeItems(folder, "config map "+name, data, items, isTrue(optional), mode)
}

func (p *pod) writeSecret(ctx context.Context, folder, name string, items []corev1.KeyToPath, optional *bool, mode *int32) error {
	s, err := p.secret(ctx, name, optional)
	if err != nil || s == nil {
		return err
	}
	return writeItems(folder, "secret "+name, s.Data, items, isTrue(optional), mode)
}

func writeItems(folder, what string, data map[string][]byte, items []corev1.KeyToPath, optional bool, mode *int32) error {
	if len(items) == 0 {
		for k, v := range data {
			if err := writeFile(folder, k, v, mode); err != nil {
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
		if err := writeFile(folder, item.Path, v, m); err != nil {
			return err
		}
	}
	return nil
}

func (p *pod) writeDownwardAPI(folder string, items []corev1.DownwardAPIVolumeFile, mode *int32) error {
	for _, item := range items {
		if item.FieldRef == nil {
			return fmt.Errorf("%s: resource fields in volumes are not supported on the process node", item.Path)
		}
		v, err := p.field(item.FieldRef.FieldPath)
		if err != nil {
			return err
		}
		if err := writeFile(folder, item.Path, []byte(v), mode); err != nil {
			return err
		}
	}
	return nil
}

// writeFile replaces a file at once, so that a reader sees the old or the new. The user can always read and write it.
func writeFile(folder, name string, content []byte, mode *int32) error {
	perm := os.FileMode(0o600)
	if mode != nil {
		perm = os.FileMode(*mode)&0o700 | 0o600
	}
	if !filepath.IsLocal(name) {
		return fmt.Errorf("file %q leads out of the volume", name)
	}
	file := filepath.Join(folder, name)
	if err := os.MkdirAll(filepath.Dir(file), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(file+".new", content, perm); err != nil {
		return err
	}
	return os.Rename(file+".new", file)
}

// findMounts resolves the container's mounts, the longest paths first.
func (c *container) findMounts(volumes map[string]string, env *environment) ([]mount, error) {
	var mounts []mount
	for _, m := range c.spec.VolumeMounts {
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
			if _, err := os.Stat(folder); os.IsNotExist(err) {
				if err := os.MkdirAll(folder, 0o700); err != nil {
					return nil, err
				}
			}
		}
		mounts = append(mounts, mount{path: strings.TrimSuffix(m.MountPath, "/"), local: folder})
	}
	slices.SortFunc(mounts, func(a, b mount) int { return len(b.path) - len(a.path) })
	return mounts, nil
}

// rewritePaths replaces mount paths, where they stand as whole paths or as beginnings of paths.
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
	return c == '/' || c == '.' || c == '-' || c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
