{{/* Names are fixed: the manager knows its webhook configurations by them. */}}
{{- define "kueue-trainer.selector" -}}
app.kubernetes.io/name: kueue-trainer
{{- end }}

{{- define "kueue-trainer.labels" -}}
{{ include "kueue-trainer.selector" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: kueue-trainer
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" }}
{{- with .Values.extraLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* An object with the chart's labels beside its own. Takes a list of the object and the context. */}}
{{- define "kueue-trainer.labelled" -}}
{{- $object := index . 0 -}}
{{- $labels := include "kueue-trainer.labels" (index . 1) | fromYaml -}}
{{- $_ := set $object.metadata "labels" (merge $labels (default dict $object.metadata.labels)) -}}
{{ toYaml $object }}
{{- end }}

{{- define "kueue-trainer.image" -}}
{{- with .Values.image -}}
{{ .repository }}{{ if .digest }}@{{ .digest }}{{ else }}:{{ .tag | default $.Chart.AppVersion }}{{ end }}
{{- end -}}
{{- end }}

{{/* What the pods of manager and hook have in common. */}}
{{- define "kueue-trainer.pod" -}}
securityContext:
  {{- toYaml (.Files.Get "files/manager.yaml" | fromYaml).spec.template.spec.securityContext | nindent 2 }}
{{- with .Values.imagePullSecrets }}
imagePullSecrets:
{{- range . }}
- name: {{ . }}
{{- end }}
{{- end }}
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .Values.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The manager's configuration: that of config/manager, what the chart knows, what the values say. */}}
{{- define "kueue-trainer.configuration" -}}
{{- $base := .Files.Get "files/configuration.yaml" | fromYaml -}}
{{- $chart := dict "namespace" .Release.Namespace "kueueConfigMap" (dict "namespace" .Values.kueue.namespace "name" .Values.kueue.configMap "key" .Values.kueue.key) "internalCertManagement" (dict "enable" (not .Values.certificates.certManager.enabled)) -}}
{{- $ports := dict "webhook" (dict "port" .Values.ports.webhook) "metrics" (dict "bindAddress" (printf ":%v" .Values.ports.metrics)) "health" (dict "healthProbeBindAddress" (printf ":%v" .Values.ports.health)) -}}
{{ toYaml (mergeOverwrite $base $chart $ports .Values.configuration) }}
{{- end }}

{{/* Labels and annotations of what is there before helm uninstall alone. */}}
{{- define "kueue-trainer.hook" -}}
labels:
  app.kubernetes.io/instance: {{ .Release.Name }}
  app.kubernetes.io/managed-by: {{ .Release.Service }}
  {{- with .Values.extraLabels }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
annotations:
  helm.sh/hook: pre-delete
  helm.sh/hook-delete-policy: before-hook-creation,hook-succeeded
{{- end }}
