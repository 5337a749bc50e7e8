package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
)

// saveFile writes the jobs of a queue into a new file that only its owner can read.
func (o *operator) saveFile(
	ctx context.Context, queue, file string, dead bool, stdout io.Writer,
) (err error) {
	out := stdout
	if file != "-" {
		f, fault := os.OpenFile(file, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if fault != nil {
			return &refusal{Detail: fault.Error(), Told: "name a file that is not there yet"}
		}
		defer func() {
			if err == nil {
				err = f.Sync()
			}
			if err = errors.Join(err, f.Close()); err != nil {
				os.Remove(file)
			}
		}()
		out = f
	}
	lines := &lineCounter{Writer: out}
	path := queuePath(queue) + "/jobs?dead=" + strconv.FormatBool(dead)
	if err := o.stream(ctx, path, lines); err != nil {
		return err
	}
	if file != "-" {
		fmt.Fprintf(stdout, "saved: %d jobs\n", lines.n)
	}
	return nil
}

// A lineCounter counts the lines that pass through it.
type lineCounter struct {
	io.Writer
	n int
}

func (c *lineCounter) Write(b []byte) (int, error) {
	c.n += bytes.Count(b, []byte("\n"))
	return c.Writer.Write(b)
}

// stream copies an answer of any length.
func (o *operator) stream(ctx context.Context, path string, to io.Writer) error {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, o.admin+path, nil)
	if err != nil {
		return err
	}
	long := *o
	long.client.Timeout = 0 // a million jobs take longer
	res, err := long.begin(r)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return o.read(res, nil)
	}
	if _, err := io.Copy(to, res.Body); err != nil {
		return fmt.Errorf("the jobs did not arrive completely: %w", err)
	}
	return nil
}
