// Command images builds the container images that our manifests and charts run: a static program in an otherwise
// empty file system. It needs Go, and neither a container engine nor the network. It is run by `make images`.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/spf13/pflag"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil && !errors.Is(err, pflag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "Error:", err)
		os.Exit(1)
	}
}

// release is the tag that the manifests name. A moving one would let another image run than the one that was looked at.
const release = "v0.1.0"

// options are the command line.
type options struct {
	registry, tag, output, root string
	platforms                   []string
	push, insecure              bool
}

func run(ctx context.Context, args []string, out io.Writer) error {
	var o options
	f := pflag.NewFlagSet("images", pflag.ContinueOnError)
	f.Usage = func() {
		fmt.Fprintf(os.Stderr, "Usage: images [flags] [IMAGE...]    (such as trommel-injector; default: all)\n%s",
			f.FlagUsages())
	}
	f.StringVar(&o.registry, "registry", "ghcr.io/trommel-dev", "first part of the images' names, such as ghcr.io/you")
	f.StringVar(&o.tag, "tag", release, "tag of the images")
	f.StringVarP(&o.output, "output", "o", "bin/images", "directory for the archives")
	f.StringVar(&o.root, "root", ".", "directory of the repository")
	f.StringSliceVar(&o.platforms, "platform", []string{"linux/" + runtime.GOARCH},
		"platforms; each has an archive of its own, a pushed image has all")
	f.BoolVar(&o.push, "push", false, "push the images to the registry (with the credentials of `docker login`) "+
		"instead of writing archives")
	f.BoolVar(&o.insecure, "insecure", false, "push by HTTP")
	if err := f.Parse(args); err != nil {
		return err
	}
	wanted, err := choose(f.Args())
	if err != nil {
		return err
	}
	var platforms []*v1.Platform
	for _, text := range o.platforms {
		p, err := v1.ParsePlatform(text)
		if err != nil || p.OS != "linux" || p.Architecture == "" {
			return fmt.Errorf("platform %q: want linux/ARCHITECTURE, such as linux/arm64", text)
		}
		if slices.ContainsFunc(platforms, func(other *v1.Platform) bool { return other.Equals(*p) }) {
			return fmt.Errorf("platform %q is given twice", text)
		}
		platforms = append(platforms, p)
	}
	for _, i := range wanted {
		if err := o.make(ctx, i, platforms, out); err != nil {
			return fmt.Errorf("image %s: %w", i.name, err)
		}
	}
	return nil
}

// choose returns the images with the names; all if there are none.
func choose(names []string) ([]image, error) {
	if len(names) == 0 {
		return images, nil
	}
	var chosen []image
	for _, name := range names {
		n := slices.IndexFunc(images, func(i image) bool { return i.name == name })
		if n < 0 {
			var known []string
			for _, i := range images {
				known = append(known, i.name)
			}
			return nil, fmt.Errorf("no image %q (there are %s)", name, strings.Join(known, ", "))
		}
		chosen = append(chosen, images[n])
	}
	return chosen, nil
}

// make builds one image for all platforms, and writes or pushes it.
func (o *options) make(ctx context.Context, i image, platforms []*v1.Platform, out io.Writer) error {
	var parse []name.Option
	if o.insecure {
		parse = append(parse, name.Insecure)
	}
	tag, err := name.NewTag(o.registry+"/"+i.name+":"+o.tag, parse...)
	if err != nil {
		return err
	}
	var built []v1.Image
	for _, p := range platforms {
		made, err := i.build(ctx, o.root, p)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		built = append(built, made)
		if o.push {
			continue
		}
		if err := os.MkdirAll(o.output, 0o755); err != nil {
			return err
		}
		path := fmt.Sprintf("%s/%s-%s.tar", o.output, i.name, strings.ReplaceAll(p.String(), "/", "-"))
		if err := tarball.WriteToFile(path, tag, made); err != nil {
			return err
		}
		info, err := os.Stat(path)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "%s  %s  %d MB\n", tag, path, info.Size()>>20)
	}
	if !o.push {
		return nil
	}
	index, err := indexOf(built, platforms)
	if err != nil {
		return err
	}
	if err := remote.WriteIndex(tag, index, remote.WithAuthFromKeychain(authn.DefaultKeychain),
		remote.WithContext(ctx)); err != nil {
		return err
	}
	digest, err := index.Digest()
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "%s@%s\n", tag, digest)
	return nil
}
