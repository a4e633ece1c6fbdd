{{/* Volumes that more than one pod has. */}}

{{/* Directory: a node where the kubelet is elsewhere is refused, instead of getting directories that no kubelet reads. */}}
{{- define "gdp.volumes.kubelet" -}}
- name: kubelet-device-plugins-dir
  hostPath:
    path: {{ .Values.kubelet.devicePluginsDir }}
    type: Directory
- name: kubelet-pod-resources-dir
  hostPath:
    path: {{ .Values.kubelet.rootDir }}/pod-resources
    type: Directory
{{- end -}}

{{- define "gdp.volumes.mps" -}}
- name: mps-root
  hostPath:
    path: {{ .Values.mps.root }}
    type: DirectoryOrCreate
- name: mps-shm
  hostPath:
    path: {{ .Values.mps.root }}/shm
    type: DirectoryOrCreate
{{- end -}}

{{/* The file, the driver's files, and every GPU: each where it is asked for. */}}
{{- define "gdp.volumes.config" -}}
{{- with include "gdp.config.map" . }}
- name: config
  configMap:
    name: {{ . }}
    items:
      - key: {{ include "gdp.config.key" $ | quote }}
        path: config.yaml
{{- end }}
{{- with .Values.nvidiaDriverRoot }}
- name: driver-root
  hostPath:
    path: {{ . }}
    type: Directory
{{- end }}
{{- if include "gdp.volumeMounts" . }}
- name: every-gpu
  hostPath:
    path: /dev/null
    type: CharDevice
{{- end }}
{{- end -}}
