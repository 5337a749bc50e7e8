package main

import (
	"cmp"
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/headgate/headgate/internal/config"
	"github.com/headgate/headgate/internal/datadir"
	"github.com/headgate/headgate/internal/doctor"
	"github.com/headgate/headgate/internal/hint"
	"github.com/headgate/headgate/internal/platform"
)

// backupCommand writes a backup.
func backupCommand(_ context.Context, args []string, stdout, stderr io.Writer) error {
	flags := flag.NewFlagSet("backup", flag.ContinueOnError)
	force := flags.Bool("force", false, "")
	dir, words, err := folderFlags(flags, args)
	switch {
	case err != nil:
		return err
	case len(words) != 1:
		return usageFault("one file is needed",
			"write headgate backup --data DIR backup.tar.gz, or - for standard output")
	}
	b, err := doctor.Take(dir, readBuild().Version)
	if err != nil {
		return err
	}
	file := words[0]
	switch {
	case file == "-" && platform.IsScreen(stdout):
		return usageFault("a backup is nothing to look at", "send it to a file or a pipe")
	case file == "-":
		if _, err = b.WriteTo(stdout); err != nil {
			err = fmt.Errorf("write the backup: %w", err)
		}
		file = "standard output"
	default:
		err = b.Save(file, *force)
	}
	if err != nil {
		return err
	}
	return tellBackup(stderr, file, b)
}

// upgradeCommand says what this version would do with a data folder that an older or a newer one has used. It
// changes nothing.
func upgradeCommand(_ context.Context, args []string, stdout, _ io.Writer) error {
	flags := flag.NewFlagSet("upgrade", flag.ContinueOnError)
	check := flags.Bool("check", false, "")
	dir, words, err := folderFlags(flags, args) // reads the configuration, if one is named
	if err = cmp.Or(err, noWords(words, "headgate upgrade --check takes flags only")); err != nil {
		return err
	}
	if !*check {
		return usageFault("an upgrade is a new binary and a restart",
			"headgate upgrade --check says what the new one would do")
	}
	if _, err := os.Stat(dir); err != nil {
		return &hint.Error{Text: dir + " is no data folder of headgate", Err: err,
			Do: "name the one of headgate run with --data DIR or --config FILE"}
	}
	format, err := datadir.Format(dir)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "%s has the format %d; headgate %s knows the formats up to %d\n",
		dir, format, readBuild().Version, datadir.Version)
	switch {
	case format > datadir.Version:
		return &hint.Error{Text: "a start would refuse the folder, and leave it as it is",
			Do: "run the newer headgate again, or restore a backup from before it"}
	case format == datadir.Version:
		fmt.Fprintln(stdout, "a start changes nothing in it; the version before can use it afterwards,\n"+
			"except for queues with keys that it does not know")
	default:
		fmt.Fprintf(stdout, "a start makes it format %d; versions that do not know that refuse it afterwards\n",
			datadir.Version)
	}
	fmt.Fprintf(stdout, "before the upgrade: headgate backup --data %s backup.tar.gz\n", config.ShellWord(dir))
	return nil
}

func tokensIn(has bool) string {
	if has {
		return "the hashes of tokens"
	}
	return "no tokens"
}

// tellBackup prints what the backup contains, and what it does not.
func tellBackup(stderr io.Writer, file string, b *doctor.Backup) error {
	rooms := "no rooms"
	if len(b.Rooms) > 0 {
		rooms = plural(len(b.Rooms), "room") + " (" + strings.Join(b.Rooms, ", ") + ")"
	}
	fmt.Fprintf(stderr, "%s: %s, %s, %s\n", file, rooms, plural(b.Keys, "sealing key"), tokensIn(b.Tokens))
	fmt.Fprintln(stderr, "It contains sealing keys: keep it like a password.")
	for _, q := range b.Queues {
		fmt.Fprintf(stderr, "The jobs of queue %s are not in it: headgate queue save %s FILE\n", q, q)
	}
	for _, w := range b.Warnings {
		fmt.Fprintf(stderr, "headgate: warning: %s\n", w)
	}
	for _, l := range b.Damaged {
		fmt.Fprintf(stderr, "headgate: record %s is not in the backup: all its copies are damaged "+
			"(records/%s)\nhint: headgate doctor says whether headgate still has it\n", l.Key, l.Files)
	}
	if len(b.Damaged) > 0 {
		return exitCode(exitFailed)
	}
	return nil
}

// restoreCommand fills a data folder.
func restoreCommand(_ context.Context, args []string, stdout, _ io.Writer) error {
	flags := flag.NewFlagSet("restore", flag.ContinueOnError)
	aside := flags.Bool("aside", false, "")
	dir, words, err := folderFlags(flags, args)
	switch {
	case err != nil:
		return err
	case len(words) != 1:
		return usageFault("one backup is needed",
			"write headgate restore --data DIR backup.tar.gz, or - for standard input")
	}
	in := os.Stdin
	if words[0] != "-" {
		if in, err = os.Open(words[0]); err != nil {
			return &hint.Error{Text: err.Error(), Do: "name a file that headgate backup wrote"}
		}
		defer in.Close()
	}
	got, err := doctor.Restore(in, doctor.RestoreConfig{Dir: dir, Aside: *aside, Now: time.Now()})
	if err != nil {
		return err
	}
	tellRestored(stdout, dir, got)
	return nil
}

// tellRestored prints what was done and what to do next.
func tellRestored(w io.Writer, dir string, got *doctor.Restored) {
	fmt.Fprintf(w, "%s is filled from the backup of %s (headgate %s): %s, %s, %s\n", dir,
		got.MadeAt.Format(time.RFC3339), got.Version, plural(len(got.Rooms), "room"),
		plural(got.Keys, "sealing key"), tokensIn(got.Tokens))
	if got.Aside != "" {
		fmt.Fprintf(w, "the old folder is %s; remove it when all is well, it holds sealing keys\n",
			got.Aside)
	}
	if got.Owner != "" {
		fmt.Fprintf(w, "all of it belongs to user %s, as the folder did\n", got.Owner)
	}
	if len(got.Rooms) == 0 {
		return
	}
	fmt.Fprintln(w, "At the next start:")
	for _, r := range got.Rooms {
		fmt.Fprintf(w, "  room %s: places are kept and passes honored until they end (%d inside); "+
			"nobody new for %s\n", r.Name, r.Inside, r.Quiet.Round(time.Second))
	}
}
