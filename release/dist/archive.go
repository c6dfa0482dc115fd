// SPDX-License-Identifier: Apache-2.0

package main

import (
	"archive/tar"
	"archive/zip"
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

// packTarGz writes files into an archive, the same for the same files and date.
func packTarGz(path string, files []file, date time.Time) error {
	return create(path, func(out io.Writer) error {
		compressed := gzip.NewWriter(out)
		err := writeTar(compressed, files, date)
		return errors.Join(err, compressed.Close())
	})
}

// packDir writes all files below a directory into an archive.
func packDir(path, dir string, date time.Time) error {
	var files []file
	err := filepath.WalkDir(dir, func(from string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, from)
		files = append(files, file{name: filepath.ToSlash(name), from: from, mode: 0o644})
		return err
	})
	if err != nil {
		return err
	}
	return create(path, func(out io.Writer) error { return writeTar(out, files, date) })
}

func writeTar(out io.Writer, files []file, date time.Time) error {
	w := tar.NewWriter(out)
	for _, f := range files {
		content, err := os.ReadFile(f.from)
		if err != nil {
			return err
		}
		header := &tar.Header{Name: f.name, Typeflag: tar.TypeReg, Mode: int64(f.mode), Size: int64(len(content)), ModTime: date, Format: tar.FormatPAX}
		if err := w.WriteHeader(header); err != nil {
			return err
		}
		if _, err := w.Write(content); err != nil {
			return err
		}
	}
	return w.Close()
}

// packZip is packTarGz for Windows.
func packZip(path string, files []file, date time.Time) error {
	return create(path, func(out io.Writer) error {
		w := zip.NewWriter(out)
		for _, f := range files {
			content, err := os.ReadFile(f.from)
			if err != nil {
				return err
			}
			header := &zip.FileHeader{Name: f.name, Method: zip.Deflate, Modified: date}
			header.SetMode(f.mode)
			entry, err := w.CreateHeader(header)
			if err != nil {
				return err
			}
			if _, err := entry.Write(content); err != nil {
				return err
			}
		}
		return w.Close()
	})
}

func create(path string, write func(io.Writer) error) error {
	out, err := os.Create(path)
	if err != nil {
		return err
	}
	return errors.Join(write(out), out.Close())
}
