// SPDX-License-Identifier: Apache-2.0

package ledger

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// ConfigMapName is the name of the ConfigMap that the ledger is saved in.
	ConfigMapName = "kueue-trainer-ledger"
	// configMapKey is its one key.
	configMapKey = "ledger.json.gz"
	// unreadableName is that of the copy of a ConfigMap that cannot be read.
	unreadableName = ConfigMapName + "-unreadable"
)

var errOvertaken = errors.New("another process has saved the ledger meanwhile")

type store struct {
	reader client.Reader
	writer client.Writer
	key    types.NamespacedName
	// self is how this process signs what it saves.
	self string
	// version is the resource version that the next save replaces; empty: there is none.
	version string
}

// load returns what is saved; nil where nothing is, and where it cannot be read. Why says unreadable: the next save replaces it
// then, and there is a copy of it. What a newer release has saved is errNewer.
func (s *store) load(ctx context.Context) (saved *Saved, unreadable, err error) {
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	var cm corev1.ConfigMap
	err = s.reader.Get(ctx, s.key, &cm)
	if apierrors.IsNotFound(err) {
		s.version = ""
		return nil, nil, nil
	}
	if err != nil {
		return nil, nil, fmt.Errorf("reading ConfigMap %s: %w", s.key, err)
	}
	s.version = cm.ResourceVersion
	saved, err = savedIn(&cm)
	if err != nil && !errors.Is(err, errNewer) {
		return nil, err, s.copyUnreadable(ctx, &cm)
	}
	return saved, nil, err
}

func savedIn(cm *corev1.ConfigMap) (*Saved, error) {
	saved, err := decode(cm.BinaryData[configMapKey])
	if err != nil {
		return nil, fmt.Errorf("ConfigMap %s/%s: %w", cm.Namespace, cm.Name, err)
	}
	return &saved, nil
}

// copyUnreadable keeps what cannot be read for people who can. The first copy stays.
func (s *store) copyUnreadable(ctx context.Context, cm *corev1.ConfigMap) error {
	err := s.writer.Create(ctx, &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.key.Namespace, Name: unreadableName, Labels: labels()},
		BinaryData: cm.BinaryData, Data: cm.Data,
	})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("keeping a copy of ConfigMap %s, which cannot be read: %w", s.key, err)
	}
	return nil
}

func labels() map[string]string { return map[string]string{"app.kubernetes.io/name": "kueue-trainer"} }

// save replaces what this process has loaded or saved last. It returns errOvertaken where another process was faster.
func (s *store) save(ctx context.Context, data []byte) error {
	ctx, cancel := context.WithTimeout(ctx, saveTimeout)
	defer cancel()
	cm := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.key.Namespace, Name: s.key.Name, ResourceVersion: s.version,
			Labels: labels(),
		},
		BinaryData: map[string][]byte{configMapKey: data},
	}
	var err error
	if s.version == "" {
		err = s.writer.Create(ctx, cm)
	} else {
		err = s.writer.Update(ctx, cm)
	}
	if apierrors.IsConflict(err) || apierrors.IsAlreadyExists(err) {
		return s.overtaken(ctx)
	}
	if apierrors.IsNotFound(err) {
		// Somebody deleted it; what this process knows is all there is.
		s.version = ""
	}
	if err != nil {
		return fmt.Errorf("saving ConfigMap %s: %w", s.key, err)
	}
	s.version = cm.ResourceVersion
	return nil
}

// overtaken tells another process's save from a change that leaves the ledger as this one has
// saved it, such as a label: the next save replaces that.
func (s *store) overtaken(ctx context.Context) error {
	saved, _, err := s.load(ctx)
	switch {
	case errors.Is(err, errNewer), saved != nil && saved.Writer != s.self:
		return errOvertaken
	case err != nil:
		return err
	}
	return fmt.Errorf("ConfigMap %s was changed by others; saving it again", s.key)
}
