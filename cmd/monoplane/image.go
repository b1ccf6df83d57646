package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/duration"

	"monoplane.dev/nodeagent/images"
	"monoplane.dev/nodeagent/images/registry"
	"monoplane.dev/nodeagent/runtime/ocinode"
)

func newImageCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "image",
		Short: "Pull, load, save, list and remove images of containers",
		Long: `Pulls, loads, saves, lists and removes images of containers, in the directory that all clusters of
this user share. No cluster need run.

Credentials are those of "docker login": the docker configuration of this user and the credential
helpers that it names.`,
		Example: `  monoplane image pull nginx:1.29
  docker save my-app:dev | monoplane image load
  monoplane image list`,
		Args: cobra.NoArgs,
		RunE: help,

		DisableFlagsInUseLine: true,
	}
	cmd.AddCommand(newImagePullCommand(), newImageLoadCommand(), newImageSaveCommand(), newImageListCommand(),
		newImageRemoveCommand())
	return cmd
}

// imageOptions say where images are, and how registries are reached.
type imageOptions struct{ dir, registries string }

// withStore makes cmd do something with the store, until it is interrupted.
func withStore(cmd *cobra.Command, do func(context.Context, *cobra.Command, *images.Store, []string) error) {
	var o imageOptions
	o.add(cmd.Flags())
	bindSettings(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) (err error) {
		ctx, stop := signal.NotifyContext(cmd.Context(), os.Interrupt, syscall.SIGTERM)
		defer stop()
		cfg, err := o.config()
		if err != nil {
			return err
		}
		s, err := images.Open(cfg)
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		return do(ctx, cmd, s, args)
	}
}

func (o *imageOptions) add(flags *pflag.FlagSet) {
	flags.StringVar(&o.dir, "image-dir", defaultImageDir(),
		"directory with the images, which the clusters of this user share")
	flags.StringVar(&o.registries, "registry-config", "",
		"YAML file that names mirrors, registries without TLS, certificates and credentials")
}

// removeTime bounds the removal of what a container has left.
const removeTime = 2 * time.Minute

func (o *imageOptions) config() (images.Config, error) {
	cfg := images.Config{Dir: o.dir, Registries: registry.Config{DockerConfig: true}}
	if os.Geteuid() != 0 {
		cfg.IDs = ocinode.IDs()
		cfg.Remove = func(dir string) error {
			ctx, cancel := context.WithTimeout(context.Background(), removeTime)
			defer cancel()
			return ocinode.Remove(ctx, dir)
		}
	}
	if o.registries == "" {
		return cfg, nil
	}
	hosts, err := registry.ReadFile(o.registries)
	if err != nil {
		return cfg, fmt.Errorf("--registry-config: %w", err)
	}
	cfg.Registries.Hosts = hosts
	return cfg, nil
}

func newImagePullCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "pull IMAGE...",
		Short: "Get images from their registries",
		Long: `Gets images from their registries and unpacks them. What an interrupted pull has brought is used by
the next one.`,
		Example: `  monoplane image pull nginx:1.29
  monoplane image pull --platform linux/arm64 registry.example.com/team/app@sha256:...`,
		Args: cobra.MinimumNArgs(1),
	}
	platform := cmd.Flags().String("platform", "", "which image of several to get, such as linux/arm64; this machine's "+
		"by default")
	withStore(cmd, func(ctx context.Context, cmd *cobra.Command, s *images.Store, args []string) error {
		for _, name := range args {
			show := newPullProgress(cmd.ErrOrStderr())
			img, err := s.Pull(ctx, name, images.PullOptions{Platform: *platform, Progress: show.update, Again: show.again})
			show.end()
			if err != nil {
				return fmt.Errorf("pull %s: %w", name, err)
			}
			if _, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n", nameOf(img, name)); err != nil {
				return err
			}
		}
		return nil
	})
	return cmd
}

// nameOf returns how an image is to be called after a pull: as asked for, in full.
func nameOf(img images.Image, asked string) string {
	if ref, err := registry.ParseReference(asked); err == nil {
		return ref.String()
	}
	return img.ID
}

func newImageLoadCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "load [FILE|DIRECTORY]",
		Short: "Add images from an archive",
		Long: `Adds images from an archive of "docker save", or from an OCI layout, which may be a tar or a
directory. Without a name, or with -, it reads standard input. Archives may be compressed with gzip
or zstd. What is no image, such as an artifact or an attestation, is skipped.`,
		Example: `  docker save my-app:dev | monoplane image load
  monoplane image load images.tar`,
		Args: cobra.MaximumNArgs(1),
	}
	withStore(cmd, func(ctx context.Context, cmd *cobra.Command, s *images.Store, args []string) error {
		show := newPullProgress(cmd.ErrOrStderr())
		opts := []images.LoadOption{images.TellSkipped(func(what string) { show.say("skipped " + what) })}
		if show.width > 0 {
			opts = append(opts, images.TellProgress(show.update))
		}
		loaded, err := loadFrom(ctx, s, cmd.InOrStdin(), args, opts)
		show.end()
		for _, img := range loaded {
			names := img.Tags
			if len(names) == 0 {
				names = []string{img.ID}
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s\n", strings.Join(names, "\n"))
			if !img.RunsHere() {
				fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s is for the platform %s, and does not run on this machine, %s\n",
					names[0], img.Platform, images.ThisPlatform())
			}
		}
		return err
	})
	return cmd
}

func loadFrom(
	ctx context.Context, s *images.Store, stdin io.Reader, args []string, opts []images.LoadOption,
) ([]images.Image, error) {
	if len(args) == 0 || args[0] == "-" {
		if f, ok := stdin.(*os.File); ok {
			if isTerminal(f) {
				return nil, errors.New("name a file or directory, or pipe an archive in; see: monoplane image load --help")
			}
			if info, err := f.Stat(); err == nil && info.Mode().IsRegular() {
				opts = append(opts, images.OfSize(info.Size()))
			}
		}
		return s.Load(ctx, stdin, opts...)
	}
	info, err := os.Stat(args[0])
	if err != nil {
		return nil, err
	}
	if info.IsDir() {
		return s.LoadDir(ctx, args[0], opts...)
	}
	f, err := os.Open(args[0])
	if err != nil {
		return nil, err
	}
	defer f.Close()
	loaded, err := s.Load(ctx, f, append(opts, images.OfSize(info.Size()))...)
	if err != nil {
		err = fmt.Errorf("%s: %w", args[0], err)
	}
	return loaded, err
}

func newImageSaveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "save IMAGE...",
		Short: "Write images to an archive",
		Long: `Writes images to a tar that is both an OCI layout and an archive that "docker load" reads. It is as
large as the compressed layers.`,
		Example: `  monoplane image save -o images.tar nginx:1.29 my-app:dev`,
		Args:    cobra.MinimumNArgs(1),
	}
	output := cmd.Flags().StringP("output", "o", "", "file to write; standard output by default")
	withStore(cmd, func(ctx context.Context, cmd *cobra.Command, s *images.Store, args []string) error {
		if *output == "" || *output == "-" {
			w := cmd.OutOrStdout()
			if f, ok := w.(*os.File); ok && isTerminal(f) {
				return errors.New("an archive is not written to a terminal: use -o FILE, or a pipe")
			}
			return s.Save(ctx, w, args...)
		}
		return saveTo(ctx, s, *output, args)
	})
	return cmd
}

// saveTo writes an archive, which appears whole or not at all.
func saveTo(ctx context.Context, s *images.Store, path string, names []string) error {
	f, err := os.CreateTemp(filepath.Dir(path), ".monoplane-save-*")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it has another name, or is in nobody's way
	err = s.Save(ctx, f, names...)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

func newImageListCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Aliases: []string{"ls"},
		Short:   "List the images",
		Example: "  monoplane image list",
		Args:    cobra.NoArgs,
	}
	withStore(cmd, func(_ context.Context, cmd *cobra.Command, s *images.Store, _ []string) error {
		all, err := s.List()
		if err != nil {
			return err
		}
		t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 3, ' ', 0)
		fmt.Fprintln(t, "NAME\tID\tPLATFORM\tSIZE\tAGE")
		for _, img := range all {
			names := img.Tags
			if len(names) == 0 {
				names = []string{"<none>"}
			}
			for _, name := range names {
				fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\n", name, shortID(img.ID), img.Platform, size(img.Size), age(img.Came))
			}
		}
		return t.Flush()
	})
	return cmd
}

func newImageRemoveCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rm IMAGE...",
		Short: "Remove images",
		Long: `Removes the names of images, and the images themselves with their last name, or when they are named
by their id. An image of which a container is made is not removed.`,
		Example: "  monoplane image rm nginx:1.29",
		Args:    cobra.MinimumNArgs(1),
	}
	withStore(cmd, func(ctx context.Context, cmd *cobra.Command, s *images.Store, args []string) error {
		var errs []error
		for _, name := range args {
			if err := s.Remove(ctx, name); err != nil {
				errs = append(errs, err)
				continue
			}
			fmt.Fprintf(cmd.OutOrStdout(), "removed %s\n", name)
		}
		return errors.Join(errs...)
	})
	return cmd
}

func shortID(id string) string {
	const digits = 12
	id = strings.TrimPrefix(id, "sha256:")
	return id[:min(digits, len(id))]
}

// age says how long ago something was, as kubectl does.
func age(t time.Time) string {
	if t.IsZero() {
		return "<unknown>"
	}
	return duration.HumanDuration(time.Since(t))
}
