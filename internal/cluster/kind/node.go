package kind

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/mod/modfile"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/trommel-dev/trommel/internal/cluster"
	"github.com/trommel-dev/trommel/internal/layer"
)

// Versions of what is in the node's image beside Kubernetes and kind, whose versions the nested modules have.
const (
	debianRelease    = "bookworm"
	debianMirror     = "http://deb.debian.org/debian"
	pauseVersion     = "3.10.2"  // that kubeadm wants
	etcdVersion      = "3.6.8-0" // likewise
	kindModule       = "sigs.k8s.io/kind"
	kubernetesModule = "k8s.io/kubernetes"
)

// debianPackages are what the programs on a node need of the system.
const debianPackages = "bash,ca-certificates,conntrack,containerd,containernetworking-plugins,curl,dbus," +
	"e2fsprogs,ethtool," +
	"iproute2,iptables,jq,kmod,libseccomp2,mount,nftables,pigz,procps,runc,socat,systemd,systemd-sysv,util-linux"

// EnvBase names an image of the engine that is used instead of one that debootstrap makes: Debian, or a system like it,
// with systemd and what else a node needs.
const EnvBase = "TROMMEL_KIND_BASE"

// NodeImage provides the image of a node whose control plane is the given executable, and returns its name. It is made
// once for each executable, without a registry: from Debian's packages, and from Go modules that are built here, which
// takes some minutes the first time.
func NodeImage(ctx context.Context, controlPlane string, progress func(string)) (string, error) {
	name, err := nodeImage(ctx, controlPlane, progress)
	if err != nil {
		return "", fmt.Errorf("make the node's image: %w", err)
	}
	return name, nil
}

func nodeImage(ctx context.Context, controlPlane string, progress func(string)) (string, error) {
	launcher, err := buildLauncher(ctx)
	if err != nil {
		return "", err
	}
	kubernetes := moduleVersion(nodeSource, kubernetesModule)
	if err := checkVersion(ctx, controlPlane, kubernetes); err != nil {
		return "", err
	}
	binaries, err := digestFiles(controlPlane, launcher)
	if err != nil {
		return "", err
	}
	base := baseName()
	name := "trommel.dev/node:" + digest(binaries, base, string(nodeSource), moduleVersion(programSource, kindModule),
		setupScript, cniConfig, proxyUnit)
	if _, err := engine(ctx, nil, "image", "inspect", name); err == nil {
		return name, nil
	}
	if _, err := engine(ctx, nil, "image", "inspect", base); err != nil {
		if os.Getenv(EnvBase) != "" {
			return "", fmt.Errorf("the engine has no image %q (%s)", base, EnvBase)
		}
		if err := makeBase(ctx, base, progress); err != nil {
			return "", fmt.Errorf("make the system of the node: %w", err)
		}
	}
	components, err := buildComponents(ctx, kubernetes, progress)
	if err != nil {
		return "", err
	}
	progress("making the node's image")
	files, err := nodeFiles(ctx, components, kubernetes)
	if err != nil {
		return "", err
	}
	return name, compose(ctx, base, name, files, controlPlaneImage(controlPlane, kubernetes), pauseImage(launcher))
}

// moduleVersion is the version of a module that another one, given as its sources, requires.
func moduleVersion(source []byte, module string) string {
	for _, f := range txtar.Parse(source).Files {
		if f.Name != "go.mod" {
			continue
		}
		file, err := modfile.ParseLax(f.Name, f.Data, nil)
		if err != nil {
			break
		}
		for _, r := range file.Require {
			if r.Mod.Path == module {
				return r.Mod.Version
			}
		}
	}
	panic("kind: no version of " + module) // a test reads the sources
}

// checkVersion refuses a control plane of another version than the kubelet.
func checkVersion(ctx context.Context, controlPlane, want string) error {
	out, err := exec.CommandContext(ctx, controlPlane, "--version").Output()
	if err != nil {
		return fmt.Errorf("ask the control plane for its version: %w", err)
	}
	if !strings.Contains(string(out), "kubernetes "+want+"\n") {
		return fmt.Errorf("a cluster of type kind has Kubernetes %s; leave out another kubernetesVersion", want)
	}
	return nil
}

func baseName() string {
	if base := os.Getenv(EnvBase); base != "" {
		return base
	}
	return "trommel.dev/base:" + digest(debianRelease, debianPackages)
}

// makeBase makes an image of Debian.
func makeBase(ctx context.Context, name string, progress func(string)) (err error) {
	if os.Geteuid() != 0 {
		return fmt.Errorf("this needs root the first time (debootstrap); or set %s to an image with systemd", EnvBase)
	}
	if _, err := exec.LookPath("debootstrap"); err != nil {
		return fmt.Errorf("there is no command debootstrap (Debian's package of that name); or set %s to an image "+
			"with systemd", EnvBase)
	}
	dir, err := os.MkdirTemp("", "trommel-base-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	progress("downloading Debian's packages for the node (about 100 MB)")
	if err := run(ctx, "debootstrap", "--variant=minbase", "--include="+debianPackages, debianRelease, dir,
		debianMirror); err != nil {
		return err
	}
	return importDir(ctx, dir, name)
}

// importDir makes an image of the files in a directory, without caches.
func importDir(ctx context.Context, dir, name string) error {
	pack := exec.CommandContext(ctx, "tar", "-C", dir, "--exclude=./var/cache/apt/archives/*.deb",
		"--exclude=./var/lib/apt/lists/*", "--exclude=./dev/*", "--exclude=./proc/*", "--exclude=./sys/*", "-c", ".")
	stream, err := pack.StdoutPipe()
	if err != nil {
		return err
	}
	if err := pack.Start(); err != nil {
		return err
	}
	_, err = engine(ctx, stream, "import", "-", name)
	return errors.Join(err, pack.Wait())
}

// run runs a program that says much; an error has the end of it.
func run(ctx context.Context, name string, args ...string) error {
	output := &tail{}
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Run(); err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("%s: %w%s", name, err, indent(strings.TrimSpace(output.String())))
	}
	return nil
}

// buildComponents builds the kubelet with what belongs to it, or finds it in the cache.
func buildComponents(ctx context.Context, kubernetes string, progress func(string)) (dir string, err error) {
	var ldflags strings.Builder
	ldflags.WriteString("-s -w")
	major, minor, _ := strings.Cut(strings.TrimPrefix(kubernetes, "v"), ".")
	minor, _, _ = strings.Cut(minor, ".")
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		for _, v := range []string{
			"gitVersion=" + kubernetes, "gitMajor=" + major, "gitMinor=" + minor, "gitTreeState=clean",
			"gitCommit=trommel", "buildDate=2026-01-01T00:00:00Z",
		} {
			ldflags.WriteString(" -X " + pkg + "." + v)
		}
	}
	parts := []string{string(nodeSource), ldflags.String(), runtime.GOARCH}
	return cached("components", parts, []string{"node"}, func(dir string) error {
		progress("building the kubelet for the node (some minutes)")
		return buildModule(ctx, nodeSource, dir, []string{"-ldflags", ldflags.String()}, "node")
	})
}

// cniConfig is the network of pods: as kind's own, without its daemon, since there is one node.
const cniConfig = `{"cniVersion": "0.4.0", "name": "trommel", "plugins": [
{"type": "ptp", "ipMasq": true, "mtu": 1500, "ipam": {"type": "host-local", "dataDir": "/run/cni-ipam-state",
 "ranges": [[{"subnet": "10.244.0.0/24"}]], "routes": [{"dst": "0.0.0.0/0"}]}},
{"type": "portmap", "capabilities": {"portMappings": true}}]}
`

// proxyUnit runs kube-proxy on the node itself, where it finds iptables.
const proxyUnit = `[Unit]
Description=kube-proxy

[Service]
ExecStart=/usr/bin/kube-proxy --kubeconfig=/etc/kubernetes/admin.conf --proxy-mode=iptables --cluster-cidr=` +
	podCIDR + ` --conntrack-max-per-core=0 --conntrack-tcp-timeout-established=0 --conntrack-tcp-timeout-close-wait=0
Restart=always
RestartSec=1s
`

// setupScript does in the node's image what kind's own Dockerfile does.
const setupScript = `set -eu
chmod 755 /kind /kind/bin
find /lib/systemd/system/sysinit.target.wants/ -name systemd-tmpfiles-setup.service -delete
rm -f /lib/systemd/system/multi-user.target.wants/* /etc/systemd/system/*.wants/*
rm -f /lib/systemd/system/local-fs.target.wants/* /lib/systemd/system/basic.target.wants/*
rm -f /lib/systemd/system/sockets.target.wants/*udev* /lib/systemd/system/sockets.target.wants/*initctl*
echo ReadKMsg=no >> /etc/systemd/journald.conf
[ -e /sbin/init ] || ln -s /lib/systemd/systemd /sbin/init
systemctl enable kubelet.service containerd.service undo-mount-hacks.service
systemctl mask systemd-binfmt.service
mkdir -p /etc/kubernetes/manifests /opt/cni /LICENSES
[ -e /usr/local/bin/containerd ] || ln -s /usr/bin/containerd /usr/local/bin/containerd # for kind's unit
[ -e /opt/cni/bin ] || ln -s /usr/lib/cni /opt/cni/bin
: > /etc/machine-id
sed -i -e 's|registry.k8s.io/pause:[0-9.]*|registry.k8s.io/pause:` + pauseVersion + `|' \
	-e 's/restrict_oom_score_adj = false/restrict_oom_score_adj = true/' /etc/containerd/config.toml
ctr oci spec |
	jq '.hooks.createContainer[.hooks.createContainer | length] |= . + {"path": "/kind/bin/mount-product-files.sh"}' |
	jq 'del(.process.rlimits)' > /etc/containerd/cri-base.json
`

// nodeFiles are the files that are added to the node's system.
func nodeFiles(ctx context.Context, components, kubernetes string) ([]layer.File, error) {
	files := []layer.File{
		{Path: "/kind/version", Data: []byte(kubernetes), Mode: 0o644},
		{Path: "/etc/cni/net.d/10-trommel.conflist", Data: []byte(cniConfig), Mode: 0o644},
		{Path: "/etc/systemd/system/kube-proxy.service", Data: []byte(proxyUnit), Mode: 0o644},
		{Path: "/usr/bin/kubelet", Local: filepath.Join(components, "node"), Mode: 0o755},
	}
	for _, name := range []string{"kubeadm", "kubectl", "kube-proxy"} {
		files = append(files, layer.File{Path: "/usr/bin/" + name, Link: "/usr/bin/kubelet", Mode: 0o755})
	}
	module, err := downloadModule(ctx, kindModule+"@"+moduleVersion(programSource, kindModule))
	if err != nil {
		return nil, err
	}
	root := filepath.Join(module, "images", "base", "files")
	err = filepath.WalkDir(root, func(local string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		relative, err := filepath.Rel(root, local)
		if err != nil {
			return err
		}
		f := layer.File{Path: path.Join("/", filepath.ToSlash(relative)), Local: local, Mode: 0o644}
		if strings.Contains(f.Path, "/bin/") {
			f.Mode = 0o755
		}
		files = append(files, f)
		return nil
	})
	return files, err
}

// controlPlaneImage is the one image of all components, which differ in the name under which the executable is called.
func controlPlaneImage(binary, kubernetes string) image {
	i := image{
		names: []string{"registry.k8s.io/etcd:" + etcdVersion},
		files: []layer.File{{Path: apiServerPath, Local: binary, Mode: 0o755}},
	}
	for _, name := range []string{"kube-controller-manager", "kube-scheduler", "etcd"} {
		i.files = append(i.files, layer.File{Path: "/usr/local/bin/" + name, Link: apiServerPath, Mode: 0o755})
	}
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		i.names = append(i.names, "registry.k8s.io/"+name+":"+kubernetes)
	}
	return i
}

func pauseImage(launcher string) image {
	return image{
		names:      []string{"registry.k8s.io/pause:" + pauseVersion},
		files:      []layer.File{{Path: "/pause", Local: launcher, Mode: 0o755}},
		entrypoint: []string{"/pause"},
	}
}

// compose makes the node's image in a container of the base image.
func compose(ctx context.Context, base, name string, files []layer.File, images ...image) (err error) {
	dir, err := os.MkdirTemp("", "trommel-node-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	id := "trommel-node-" + cluster.RandomHex(4)
	if _, err := engine(ctx, nil, "run", "-d", "--name", id, "--privileged", "--network", "none",
		"--stop-signal", "SIGRTMIN+3", // which the image keeps, and systemd knows
		"--entrypoint", "sleep", base, "infinity"); err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
		defer cancel()
		_, removed := engine(ctx, nil, "rm", "-f", "-v", id)
		err = errors.Join(err, removed)
	}()
	stream, w := io.Pipe()
	go func() { _ = w.CloseWithError(layer.Write(w, files)) }()
	if _, err := engine(ctx, stream, "cp", "-", id+":/"); err != nil {
		return err
	}
	if _, err := engine(ctx, nil, "exec", id, "sh", "-c", setupScript); err != nil {
		return err
	}
	if _, err := engine(ctx, nil, "exec", "-d", id, "containerd"); err != nil {
		return err
	}
	if err := poll(ctx, func(ctx context.Context) error {
		_, err := engine(ctx, nil, "exec", id, "ctr", "version")
		return err
	}); err != nil {
		return fmt.Errorf("wait for containerd: %w", err)
	}
	for n, i := range images {
		archive := filepath.Join(dir, fmt.Sprintf("%d.tar", n))
		if err := i.write(archive); err != nil {
			return err
		}
		f, err := os.Open(archive)
		if err != nil {
			return err
		}
		_, err = engine(ctx, f, "exec", "-i", id, "ctr", "--namespace=k8s.io", "images", "import", "--no-unpack",
			"-")
		if err := errors.Join(err, f.Close()); err != nil {
			return err
		}
	}
	if _, err := engine(ctx, nil, "exec", id, "pkill", "-x", "containerd"); err != nil {
		return err
	}
	_, err = engine(ctx, nil, "commit", "--change", "ENV container=docker",
		"--change", `ENTRYPOINT ["/usr/local/bin/entrypoint", "/sbin/init"]`, "--change", "CMD []", id, name)
	return err
}
